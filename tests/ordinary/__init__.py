"""Training loops as people write them, none of them for memlab: see ``test_loops.py``."""
