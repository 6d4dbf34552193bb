"""The answers of cuDNN: from what ships with memlab, from earlier questions, or from a question now."""

from functools import cache

from memlab.vgpu.cudnn import installed, shipped
from memlab.vgpu.cudnn.client import ByCapability
from memlab.vgpu.cudnn.convolution import Convolution
from memlab.vgpu.cudnn.disk_cache import Remembered

Answer = tuple[int, ...] | None


class Answers:
    """Answers of the cuDNN that a version of PyTorch would load, or of the nearest that there is.

    Args:
        wanted: the version of cuDNN, 92000 for 9.20.0.
        version: of the one that is here, or 0.
        client: asks it, or None where none is here.
        remembered: what it was asked in other processes.

    Attributes:
        known: by compute capability and question: the answer, and the version that gave it.
    """

    def __init__(self, wanted: int, version: int, client: ByCapability | None, remembered: Remembered | None = None):
        self.known: dict[tuple[int, Convolution], tuple[Answer, int]] = {}
        self._wanted = wanted
        self._version = version
        self._client = client
        self._remembered = remembered

    def find(self, capability: int, question: Convolution) -> tuple[Answer, int]:
        """The workspaces of the plans that ATen would try, falling, in bytes, and the version of cuDNN that says so.

        ``(None, 0)`` where nobody knows; an empty answer where cuDNN has no plan.
        """
        key = capability, question
        if key not in self.known:
            self.known[key] = self._look(capability, question)
        return self.known[key]

    def _look(self, capability: int, question: Convolution) -> tuple[Answer, int]:
        found = shipped.find(capability, question)
        if found is not None and (shipped.version() == self._wanted or self._client is None):
            return found, shipped.version()
        asked = self._ask(capability, question)
        if asked is not None:
            return asked, self._version
        return (found, shipped.version()) if found is not None else (None, 0)

    def _ask(self, capability: int, question: Convolution) -> Answer:
        if self._client is None:
            return None
        answer = self._remembered.find(capability, question) if self._remembered else None
        if answer is None:
            answer = self._client.ask(capability, question)
            if answer is not None and self._remembered:
                self._remembered.add(capability, question, answer)
        return answer


@cache
def answers(wanted: int) -> Answers:
    """Those for that version of cuDNN."""
    library, version = installed.library(), installed.version()
    if library is None:
        return Answers(wanted, 0, None)
    return Answers(wanted, version, ByCapability(library), Remembered(version))
