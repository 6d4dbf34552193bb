"""Scaled dot product attention: which kernel runs it, how it is taken apart, and what it allocates meanwhile."""
