"""What every sentence needs."""


def capital(sentence: str) -> str:
    """The sentence with a capital letter at its beginning; the rest as it is, names among it."""
    return sentence[:1].upper() + sentence[1:]
