"""The cards: what a process sees of each."""

from dataclasses import dataclass, replace

from memlab.errors import BadValue
from memlab.units import parse_bytes


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
    def endless(self) -> "Card":
        """One with the same kernels and room for everything: for what a loop wants, where that is more than it gets."""
        return replace(self, capacity=2**50)

    @property
    def bf16(self) -> bool:
        """True if it computes in bfloat16 (before sm_80 CUDA only emulates it)."""
        return self.sm >= 80


def _card(name: str, capacity: str, sm: int, processors: int, threads: int, context: str) -> Card:
    return Card(name, parse_bytes(capacity), sm, processors, threads, parse_bytes(context))


# Capacities are those that PyTorch prints, in OOM messages and device properties; they differ by some tenths of a
# GiB between drivers, and the lower of those seen stands here. The context is what a process held beyond what
# PyTorch had reserved ("Process has X in use. Y allocated, Z reserved but unallocated": X - Y - Z); where no such
# message was found for a card (marked est.), it is that of the nearest card of its generation.
CARDS = {
    card.name: card
    for card in (
        # capacity: CatVTON#133; context: leetgpu-challenges#52
        _card("T4", "14.56 GiB", 75, 40, 1024, "123 MiB"),
        # capacity: 16160 MiB, yolov5 at 9ac9ec34; context: est.
        _card("V100", "15.78 GiB", 70, 80, 2048, "300 MiB"),
        # capacity: PhotoMaker#47; context: est.
        _card("RTX 3060", "11.76 GiB", 86, 28, 1536, "288 MiB"),
        # capacity: 25262096384 bytes, ComfyUI#7063; context: SoulX-FlashTalk#5
        _card("RTX 4090", "25262096384 B", 89, 128, 1536, "450 MiB"),
        # capacity: 16303 MiB, rif42/P0-safety at c210c5c8; context: est.
        _card("RTX 5080", "16303 MiB", 120, 84, 1536, "595 MiB"),
        # capacity and context: Wan2.1#465
        _card("RTX 5090", "31.37 GiB", 120, 170, 1536, "595 MiB"),
        # capacity: 23921033216 bytes, and context (at most): ComfyUI#10246
        _card("L4", "23921033216 B", 89, 58, 1536, "189 MiB"),
        # capacity: 22587 MiB, TorchCodec's CUDA tutorial; context: of an A10, MiniCPM-V#640
        _card("A10G", "22587 MiB", 86, 80, 1536, "288 MiB"),
        # capacity and context: Step-Video-T2V#8
        _card("L40S", "44.42 GiB", 89, 142, 1536, "419 MiB"),
        # capacity: 42298834944 bytes, bottlerocket#3873; context: CoSeR#10
        _card("A100-40GB", "42298834944 B", 80, 108, 2048, "501 MiB"),
        # capacity: 81051 MiB, ultralytics#22877; context: Control-GIC#6
        _card("A100-80GB", "81051 MiB", 80, 108, 2048, "503 MiB"),
        # capacity: HunyuanVideo-Avatar#6, and context (NCCL not excluded)
        _card("H100", "79.10 GiB", 90, 132, 2048, "686 MiB"),
        # measured, driver 580.159.04; the context after a matrix product and a convolution, 610 MiB before any
        _card("H200", "150109880320 B", 90, 132, 2048, "684 MiB"),
        # capacity and context: stas00/ml-engineering, debug/pytorch.md
        _card("B200", "178.35 GiB", 100, 148, 2048, "712 MiB"),
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


def card_like(sm: int, processors: int, capacity: int) -> Card | None:
    """The card with this compute capability, so many multiprocessors and about this capacity in bytes, or None."""
    alike = (card for card in CARDS.values() if (card.sm, card.processors) == (sm, processors))
    return next((card for card in alike if abs(card.capacity / capacity - 1) < 0.05), None)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
