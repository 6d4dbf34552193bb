"""Bytes that DeepSpeed's ZeRO keeps on each rank."""

from dataclasses import dataclass

from memlab.cluster.deepspeed.configuration import Configuration
from memlab.errors import BadValue

MASTER = 4  # bytes: the optimizer works with weights and gradients in float32, whatever the model's precision


@dataclass(frozen=True)
class Residents:
    """Bytes of one rank while the optimizer makes its step, on the card or, what is offloaded, on the host.

    Attributes:
        parameters: the model's weights (in stage 3 this rank's part) and the optimizer's copy of this rank's part.
        gradients: this rank's part in float32; in stage 3 also as backward leaves it, and the bucket it is reduced in.
        optimizer_state: two numbers for each one of this rank's part, as Adam keeps them.
    """

    parameters: int
    gradients: int
    optimizer_state: int


def residents(numbers: int, configuration: Configuration) -> Residents:
    """The residents of a model with so many parameters under Adam, for stages 1 to 3.

    The rules were found by measuring DeepSpeed 0.19.8 in float32 and bfloat16. Some counters, under 100 bytes, come on
    top, and padding where the ranks' parts are uneven. In stage 3 parameters of fewer numbers than
    ``stage3_param_persistence_threshold`` stay whole, which is not counted.

    Raises:
        BadValue: for stage 0, where every rank has everything.
    """
    if not configuration.stage:
        raise BadValue(
            "stage=0 leaves every rank everything: give a configuration whose zero_optimization has a stage."
        )
    part = -(-numbers // configuration.world_size)
    weight = 4 if configuration.precision == "fp32" else 2
    if configuration.stage == 3:
        weights, reduced = weight * part, weight * (part + configuration.reduce_bucket_size)
    else:
        weights, reduced = weight * numbers, 0
    return Residents(weights + MASTER * part, reduced + MASTER * part, 2 * MASTER * part)
