"""Text of notebooks for pages, without what speaks of things that a page does not have."""

import re
from collections.abc import Callable, Iterator, Sequence

# On a page no cell is run and no heading is folded, and its reader is at no saved copy.
GONE = r"Shift and Enter|(?i:\brun (?:the|this|both|these) (?:\w+ )?cells?\b)|when you open a notebook|saved copy"
# Buttons and menus that only the panel of a notebook has.
ONLY_LIVE = r"\*+(?:Keep|More|Save|Reset)\*+|(?:beside|menu|box) \*+(?:budget|recorded)\*+"
RUN = r"\*\*Run\*\*"
FOLLOWS = re.compile(r"(?:\d+\. )?(?:The same|They)\b")
MARK = re.compile(r"^(?:\d+\.|[-*]) ", re.MULTILINE)
ITEM = re.compile(rf"(?={MARK.pattern})", re.MULTILINE)
NOTE = re.compile(r"\*[^*].*\*", re.DOTALL)  # such as those for teachers, who have the notebooks
# Up to the end of a sentence, or of all that stands in brackets, and the space behind it.
SENTENCE = re.compile(
    r"(?:\([^()]*(?:\([^()]*\)[^()]*)*\)|[^(])*?(?:[.!?][*_\"”]*|(?<=[.!?]\)))(?:\s+|$)|.+", re.DOTALL
)


def on_page(markdown: str, *, has_runs: bool = True) -> str:
    """The text without the list items, and outside of lists without the sentences, that speak of what is not there."""
    lacking = re.compile("|".join([GONE, ONLY_LIVE, *([] if has_runs else [RUN])]))

    def is_gone(text: str) -> bool:
        return lacking.search(" ".join(text.split())) is not None

    blocks = re.split(r"(\n{2,})", markdown)
    return "".join(_kept(block, is_gone) if is_gone(block) and not NOTE.fullmatch(block) else block for block in blocks)


def items(markdown: str) -> Iterator[str]:
    """The list items and the paragraphs, each in one line."""
    for block in re.split(r"\n{2,}", markdown):
        for item in ITEM.split(block):
            if text := " ".join(item.split()):
                yield text


def _kept(block: str, is_gone: Callable[[str], bool]) -> str:
    """The rest of a paragraph and of the list below it, whose numbers have no gap."""
    paragraph, *listed = ITEM.split(block)
    left = list(_left(SENTENCE.findall(paragraph), is_gone))
    for number, item in enumerate(_left(listed, is_gone), 1):
        left.append(re.sub(r"^\d+", str(number), item))
    return "".join(left)


def _left(parts: Sequence[str], is_gone: Callable[[str], bool]) -> Iterator[str]:
    """Those that are not gone, and do not go on with one that is."""
    before = False
    for part in parts:
        before = is_gone(part) or (before and FOLLOWS.match(part) is not None)
        if not before:
            yield part
