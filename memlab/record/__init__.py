"""Recordings: what a matrix of training loops really took on a GPU, to hold predictions to."""
