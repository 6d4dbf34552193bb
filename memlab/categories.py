"""What a byte is for, and what the training loop was doing."""

from enum import StrEnum


class Category(StrEnum):
    """What a byte is for, in the order in which a picture stacks them, bottom first."""

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
    """What the training loop was doing."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    OTHER = "other"
