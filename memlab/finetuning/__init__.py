"""Fine-tuning a model that people know by name: its sizes, and one loop with the switches that decide about memory."""

from memlab.finetuning.loop import ADAPTED, METHODS, OPTIMIZERS, train
from memlab.finetuning.models import MODELS, count_weights, find_model

__all__ = ["ADAPTED", "METHODS", "MODELS", "OPTIMIZERS", "count_weights", "find_model", "train"]
