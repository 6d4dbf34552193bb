"""Figures that depend on a card's compute capability alone."""

from dataclasses import dataclass

from memlab.errors import BadValue


@dataclass(frozen=True)
class Architecture:
    """Of one compute capability.

    Attributes:
        name: as NVIDIA calls it.
        threads: that one multiprocessor can hold.
        blocks: of threads that one multiprocessor can hold.
        shared: KiB of shared memory of a multiprocessor.
        shared_optin: KiB of shared memory that one block of threads may ask for.
    """

    name: str
    threads: int
    blocks: int
    shared: int
    shared_optin: int


# By compute capability, 75 for 7.5. NVIDIA's CUDA C++ Programming Guide, table "Technical Specifications per Compute
# Capability". Which kernels PyTorch, cuDNN and cuBLAS choose by it is in the rules: grep for ``card.sm``.
ARCHITECTURES = {
    70: Architecture("Volta", 2048, 32, 96, 96),
    75: Architecture("Turing", 1024, 16, 64, 64),
    80: Architecture("Ampere", 2048, 32, 164, 163),
    86: Architecture("Ampere", 1536, 16, 100, 99),
    89: Architecture("Ada Lovelace", 1536, 24, 100, 99),
    90: Architecture("Hopper", 2048, 32, 228, 227),
    100: Architecture("Blackwell", 2048, 32, 228, 227),
    103: Architecture("Blackwell Ultra", 2048, 32, 228, 227),
    120: Architecture("Blackwell", 1536, 24, 100, 99),
}


def find_architecture(sm: int) -> Architecture:
    """The architecture of a card's compute capability, 75 for 7.5.

    Raises:
        BadValue: for one that has no entry here.
    """
    if sm not in ARCHITECTURES:
        known = ", ".join(f"sm_{one}" for one in ARCHITECTURES)
        raise BadValue(f"sm_{sm} has no entry in memlab/vgpu/architectures.py, which knows {known}: add it there.")
    return ARCHITECTURES[sm]
