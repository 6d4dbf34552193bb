"""More than one GPU, for real: processes that train together, each of them measured."""

from memlab.cluster.cluster_run import ClusterRun, measure

__all__ = ["ClusterRun", "measure"]
