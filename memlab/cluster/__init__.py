"""More than one GPU, for real: processes that train together, each of them measured."""

from memlab.cluster.run import ClusterRun, measure

__all__ = ["ClusterRun", "measure"]
