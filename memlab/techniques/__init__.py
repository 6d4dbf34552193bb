"""Finished versions of what the notebooks teach by hand, one file each."""
