"""Fine-tuning a model that people know by name: its sizes, and one loop with the switches that decide about memory."""

from memlab.finetuning.loop import ADAPTED, METHODS, OPTIMIZERS, adapt, loss_of, make_model, train
from memlab.finetuning.models import MODELS, count_weights, find_model

__all__ = ["ADAPTED", "METHODS", "MODELS", "OPTIMIZERS"]
__all__ += ["adapt", "count_weights", "find_model", "loss_of", "make_model", "train"]
