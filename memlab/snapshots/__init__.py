"""Snapshots that PyTorch's allocator wrote of a run, explained and compared."""

from memlab.snapshots.comparing import Comparison, compare_snapshots
from memlab.snapshots.reading import is_snapshot
from memlab.snapshots.telling import SnapshotExplanation, explain_snapshot

__all__ = ["Comparison", "SnapshotExplanation", "compare_snapshots", "explain_snapshot", "is_snapshot"]
