"""Seeing every tensor storage born, resized and freed, and saying what each was for."""

from memlab.tracking import forks  # noqa: F401  (what happens in a forked process)
from memlab.tracking.storages import BudgetExceeded
from memlab.tracking.tracker import Tracker, Xray

__all__ = ["BudgetExceeded", "Tracker", "Xray"]
