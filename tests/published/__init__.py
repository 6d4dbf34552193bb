"""Totals that others have published of training on real GPUs, held to predictions."""
