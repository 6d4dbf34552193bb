"""How fast the cards are, by NVIDIA's data sheets: dense, at boost clock."""

from dataclasses import dataclass

import torch

TERA, GIGA, MEGA = 10**12, 10**9, 2**20
TEN_GIGABIT = 1.25  # in gigabytes a second
HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Speed:
    """What a card can do in a second.

    Attributes:
        fp32: floating-point operations outside of tensor cores.
        tf32: of float32 products on tensor cores, where the program allows that; as ``fp32`` before sm_80.
        fp16: of float16 products on tensor cores, summed in float32.
        bf16: of bfloat16 products; as ``fp32`` before sm_80, which has no tensor cores for them.
        memory: bytes between the card and its own memory.
        bus: bytes between host and card, in one direction.
        link: bytes from one card to others of its machine, in one direction.
        network: bytes from one machine of eight such cards to others. An assumption: it is not the card's.
        cache: bytes of second-level cache, which need not go to memory (not a speed, but from the same sheet).
    """

    fp32: float
    tf32: float
    fp16: float
    bf16: float
    memory: float
    bus: float
    link: float
    network: float
    cache: int

    def of_products(self, dtype: torch.dtype, tf32: bool) -> float:
        """Operations a second of matrix products and convolutions on this type."""
        if dtype is torch.float32:
            return self.tf32 if tf32 else self.fp32
        if dtype in HALF:
            return self.fp16 if dtype is torch.float16 else self.bf16
        return 2 * self.fp16 if dtype.itemsize == 1 else self.fp32

    def of_attention(self, dtype: torch.dtype) -> float:
        """The same of fused attention, whose float32 is three products of TF32.

        ``OpMultiplyAddFastF32`` in ``gemm_kernel_utils.h`` of PyTorch's ``mem_eff_attention``.
        """
        return max(self.fp32, self.tf32 / 3) if dtype is torch.float32 else self.of_products(dtype, False)


def _speed(
    fp32: float,
    tf32: float,
    fp16: float,
    bf16: float,
    memory: float,
    bus: float,
    cache: float,
    *,
    nvlink: float | None = None,
    network: float = TEN_GIGABIT,
) -> Speed:
    flops = TERA * fp32, TERA * tf32, TERA * fp16, TERA * bf16
    of_bytes = GIGA * memory, GIGA * bus, GIGA * (nvlink or bus), GIGA * network
    return Speed(*flops, *of_bytes, int(MEGA * cache))


# TFLOP/s, then GB/s, then MiB. Sparse figures are halved. Of GeForce cards the figures with sums in float32 stand here:
# PyTorch sums so. Half of what a sheet gives for PCIe in both directions is the bus, half of NVLink's the link; cards
# without NVLink send through the bus. Networks are those of NVIDIA's DGX of the time (an adapter for each card, of the
# V100 four) or of AWS's instance with eight of the cards; for desktops Ethernet of 10 Gbit/s is assumed.
SPEEDS = {
    # NVIDIA T4 data sheet; Turing whitepaper; g4dn.metal
    "T4": _speed(8.1, 8.1, 65, 8.1, 320, 16, 4, network=12.5),
    # NVIDIA V100 data sheet, SXM2; Volta whitepaper; DGX-1
    "V100": _speed(15.7, 15.7, 125, 15.7, 900, 16, 6, nvlink=150, network=50),
    # NVIDIA Ampere GA102 whitepaper, for 28 multiprocessors at 1.78 GHz
    "RTX 3060": _speed(12.7, 12.7, 25.5, 25.5, 360, 32, 3),
    # NVIDIA Ada GPU architecture whitepaper
    "RTX 4090": _speed(82.6, 82.6, 165.2, 165.2, 1008, 32, 72),
    # NVIDIA RTX Blackwell GPU architecture whitepaper
    "RTX 5080": _speed(56.3, 56.3, 112.6, 112.6, 960, 64, 64),
    "RTX 5090": _speed(104.8, 104.8, 209.5, 209.5, 1792, 64, 96),
    # NVIDIA L4 data sheet; Ada whitepaper; g6.48xlarge
    "L4": _speed(30.3, 60, 121, 121, 300, 32, 48, network=12.5),
    # NVIDIA A10G data sheet; GA102 whitepaper; g5.48xlarge
    "A10G": _speed(35, 35, 70, 70, 600, 32, 6, network=12.5),
    # NVIDIA L40S data sheet; Ada whitepaper; g6e.48xlarge
    "L40S": _speed(91.6, 183, 362, 362, 864, 32, 96, network=50),
    # NVIDIA A100 data sheet, SXM; DGX A100
    "A100-40GB": _speed(19.5, 156, 312, 312, 1555, 32, 40, nvlink=300, network=200),
    "A100-80GB": _speed(19.5, 156, 312, 312, 2039, 32, 40, nvlink=300, network=200),
    # NVIDIA H100 data sheet, SXM5; Hopper whitepaper; DGX H100
    "H100": _speed(67, 494.7, 989.4, 989.4, 3350, 64, 50, nvlink=450, network=400),
    # NVIDIA H200 data sheet, SXM; DGX H200; its cache as the driver gives it
    "H200": _speed(67, 494.7, 989.4, 989.4, 4800, 64, 60, nvlink=450, network=400),
    # NVIDIA Blackwell data sheet, HGX B200; DGX B200
    "B200": _speed(80, 1125, 2250, 2250, 8000, 64, 126, nvlink=900, network=400),
}
