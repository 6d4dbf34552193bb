"""A training script as it is, predicted and measured."""

from memlab.script.script import Script as Script
