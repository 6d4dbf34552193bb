"""Recordings of the memory that the corpus of loops takes on a device: ``python -m tests.record``."""
