"""What the stand-in knows of a card beyond ``memlab.vgpu.CARDS``: figures that kernels and cuDNN ask for."""

from dataclasses import dataclass

from memlab.vgpu import find_card


@dataclass(frozen=True)
class Figures:
    """Of one card.

    Attributes:
        name: as the driver gives it.
        shared: KiB of shared memory a multiprocessor.
        shared_optin: KiB of shared memory that one block may ask for.
        l2: MiB of second-level cache.
        bus: bits of the memory's bus.
        clock: MHz of the processors.
        memory_clock: MHz of the memory.
    """

    name: str
    shared: int
    shared_optin: int
    l2: int
    bus: int
    clock: int
    memory_clock: int


# Shared memory: NVIDIA's CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability"; the rest:
# the cards' data sheets.
FIGURES = {
    "T4": Figures("Tesla T4", 64, 64, 4, 256, 1590, 5001),
    "V100": Figures("Tesla V100-SXM2-16GB", 96, 96, 6, 4096, 1530, 877),
    "RTX 3060": Figures("NVIDIA GeForce RTX 3060", 100, 99, 3, 192, 1777, 7501),
    "RTX 4090": Figures("NVIDIA GeForce RTX 4090", 100, 99, 72, 384, 2520, 10501),
    "RTX 5080": Figures("NVIDIA GeForce RTX 5080", 100, 99, 64, 256, 2617, 15001),
    "RTX 5090": Figures("NVIDIA GeForce RTX 5090", 100, 99, 96, 512, 2407, 14001),
    "L4": Figures("NVIDIA L4", 100, 99, 48, 192, 2040, 6251),
    "A10G": Figures("NVIDIA A10G", 100, 99, 6, 384, 1710, 6251),
    "L40S": Figures("NVIDIA L40S", 100, 99, 96, 384, 2520, 9001),
    "A100-40GB": Figures("NVIDIA A100-SXM4-40GB", 164, 163, 40, 5120, 1410, 1215),
    "A100-80GB": Figures("NVIDIA A100-SXM4-80GB", 164, 163, 40, 5120, 1410, 1593),
    "H100": Figures("NVIDIA H100 80GB HBM3", 228, 227, 50, 5120, 1980, 2619),
    "H200": Figures("NVIDIA H200", 228, 227, 60, 6144, 1980, 3201),
    "B200": Figures("NVIDIA B200", 228, 227, 126, 8192, 1965, 3996),
}


def described(name: str) -> str:
    """A card in one line, as ``libraries/cudart.c`` reads it.

    Raises:
        BadValue: for an unknown card.
    """
    card = find_card(name)
    own = FIGURES[card.name]
    numbers = (card.capacity, card.context, *divmod(card.sm, 10), card.processors, card.threads)
    numbers += (own.shared, own.shared_optin, own.l2, own.bus, own.clock, own.memory_clock)
    return ";".join([own.name, *map(str, numbers)])
