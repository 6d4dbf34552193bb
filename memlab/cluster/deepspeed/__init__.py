"""A DeepSpeed configuration: read without DeepSpeed, what it would ignore named, its bytes for each rank worked out."""

from memlab.cluster.deepspeed.configuration import Configuration, read
from memlab.cluster.deepspeed.residents import Residents, residents

__all__ = ["Configuration", "Residents", "read", "residents"]
