"""The categories of bytes in memory, and the phases of a training loop."""

from enum import StrEnum


class Category(StrEnum):
    """The purpose of a byte. The order is that in which a picture stacks the categories, bottom first."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    OPTIMIZER_STATE = "optimizer state"
    GRADIENT = "gradient"
    INPUT = "input"
    HELD = "held over"
    COMMUNICATION = "communication"
    ACTIVATION = "activation"
    RECOMPUTED = "recomputed activation"
    TEMPORARY = "temporary"
    WORKSPACE = "workspace"

    @property
    def plural(self) -> str:
        """The category as a sentence or a legend names it."""
        if self in (Category.OPTIMIZER_STATE, Category.HELD, Category.COMMUNICATION, Category.WORKSPACE):
            return str(self)
        return "temporaries" if self is Category.TEMPORARY else f"{self}s"


class Phase(StrEnum):
    """The part of the training step that the loop was in."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    OTHER = "other"

    @property
    def place(self) -> str:
        """Say where it is, in a sentence."""
        return "outside of forward, backward and optimizer" if self is Phase.OTHER else f"in {self}"
