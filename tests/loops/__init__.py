"""The corpus of training loops, held to ``measure`` and to what cards took (``tests/record``)."""
