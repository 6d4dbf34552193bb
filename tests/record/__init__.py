"""What loops of the corpus take on a device, kept in files: ``python -m tests.record``."""
