"""The cards: what a process sees of each."""

from dataclasses import dataclass

from memlab.errors import BadValue
from memlab.units import MIB, parse_bytes


@dataclass(frozen=True)
class Card:
    """A GPU model.

    Attributes:
        name: as it is typed, ``"T4"``.
        capacity: bytes that PyTorch reports as the card's total.
        sm: compute capability, 75 for 7.5: which kernels CUDA chooses.
        processors: multiprocessors, which decide how reductions are divided.
        threads: threads that one multiprocessor can hold.
        context: bytes that the CUDA context takes from the capacity, outside PyTorch's allocator.
    """

    name: str
    capacity: int
    sm: int
    processors: int
    threads: int
    context: int

    @property
    def room(self) -> int:
        """The most bytes that PyTorch's allocator can reserve on it."""
        return self.capacity - self.context

    @property
    def bf16(self) -> bool:
        """Whether it computes in bfloat16 (before sm_80 CUDA only emulates it)."""
        return self.sm >= 80

    @property
    def cublas_workspace(self) -> int:
        """Bytes of cuBLAS workspace for each thread that multiplies matrices.

        ``getCUDABlasWorkspaceSize`` of PyTorch: 32 MiB on Hopper and later data-centre cards, else 2 buffers of
        4096 KiB and 8 of 16 KiB.
        """
        return 32 * MIB if self.sm in (90, 100) else 2 * 4096 * 1024 + 8 * 16 * 1024


def _card(name: str, capacity: str, sm: int, processors: int, threads: int, context: str) -> Card:
    return Card(name, parse_bytes(capacity), sm, processors, threads, parse_bytes(context))


CARDS = {
    card.name: card
    for card in (
        _card("T4", "14.74 GiB", 75, 40, 1024, "300 MiB"),
        _card("V100", "15.77 GiB", 70, 80, 2048, "300 MiB"),
        _card("RTX 3060", "11.76 GiB", 86, 28, 1536, "300 MiB"),
        _card("RTX 4090", "23.64 GiB", 89, 128, 1536, "400 MiB"),
        _card("L4", "22.16 GiB", 89, 58, 1536, "300 MiB"),
        _card("A10G", "22.19 GiB", 86, 80, 1536, "300 MiB"),
        _card("A100-40GB", "39.39 GiB", 80, 108, 2048, "450 MiB"),
        _card("A100-80GB", "79.15 GiB", 80, 108, 2048, "450 MiB"),
        _card("H100", "79.11 GiB", 90, 132, 2048, "550 MiB"),
        _card("H200", "139.80 GiB", 90, 132, 2048, "550 MiB"),
        _card("B200", "178.35 GiB", 100, 148, 2048, "700 MiB"),
    )
}


def find_card(name: str) -> Card:
    """The card of that name; upper and lower case, spaces and dashes do not matter.

    Raises:
        BadValue: for an unknown card.
    """
    wanted = _plain(str(name))
    for card in CARDS.values():
        if _plain(card.name) == wanted:
            return card
    raise BadValue(f"gpu {name!r} is not a card that memlab knows: give one of {', '.join(CARDS)}.")


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
