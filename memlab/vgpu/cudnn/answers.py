"""What cuDNN has answered: in this process, in the file that ships with memlab, or now."""

from dataclasses import dataclass, field
from functools import cache

from memlab.vgpu.cudnn import installed
from memlab.vgpu.cudnn.client import Client, of_library
from memlab.vgpu.cudnn.questions import Convolution


@dataclass
class Answers:
    """Answers of one version of cuDNN.

    Attributes:
        version: 92000 for 9.20.0.
        client: asks it, or None where it is not here.
        known: by compute capability and question.
    """

    version: int
    client: Client | None = None
    known: dict[tuple[int, Convolution], tuple[int, ...] | None] = field(default_factory=dict)

    def find(self, capability: int, question: Convolution) -> tuple[int, ...] | None:
        """The workspaces of the plans that ATen would try, falling, in bytes; None where nobody knows."""
        key = capability, question
        if key not in self.known and self.client is not None and not self.client.has_failed:
            self.known[key] = self.client.ask(capability, question)
        return self.known.get(key)


@cache
def answers() -> Answers:
    """Those of the cuDNN that is installed, if one is."""
    library = installed.library()
    return Answers(installed.version(), of_library(library) if library else None)
