"""Seeing every tensor storage born, resized and freed, and saying what each was for."""

from memlab.tracking.tracker import BudgetExceeded, Tracker, Xray, is_out_of_memory

__all__ = ["BudgetExceeded", "Tracker", "Xray", "is_out_of_memory"]
