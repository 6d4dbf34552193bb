"""The cards: what a process sees of each, and how fast it is. An entry a card, with the sources of its figures."""

from dataclasses import dataclass, replace

from memlab.units import MIB, parse_bytes
from memlab.vgpu.architectures import Architecture, find_architecture

TERA, GIGA = 10**12, 10**9
TEN_GIGABIT = 1.25  # in gigabytes a second


_ENDLESS = 2**50  # bytes


@dataclass(frozen=True)
class Speed:
    """A card's speeds: how much it does in a second.

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


@dataclass(frozen=True)
class Card:
    """A GPU model.

    Attributes:
        name: as it is typed, ``"T4"``.
        driver_name: as the driver gives it, ``"Tesla T4"``.
        capacity: bytes that PyTorch reports as the card's total.
        context: bytes that the CUDA context takes from the capacity, outside PyTorch's allocator.
        sm: compute capability, 75 for 7.5: which kernels CUDA chooses.
        processors: multiprocessors, which decide how reductions are divided.
        width: bits of the memory's bus.
        clocks: MHz of the processors and of the memory.
        speed: what it can do in a second.
        taken_from: for a card that is only described, the one that has given what was not said; else ``""``.

    Raises:
        BadValue: for a compute capability that memlab does not know.
    """

    name: str
    driver_name: str
    capacity: int
    context: int
    sm: int
    processors: int
    width: int
    clocks: tuple[int, int]
    speed: Speed
    taken_from: str = ""

    def __post_init__(self) -> None:
        find_architecture(self.sm)

    @property
    def architecture(self) -> Architecture:
        """The figures that its compute capability decides."""
        return find_architecture(self.sm)

    @property
    def threads(self) -> int:
        """Threads that one multiprocessor can hold."""
        return self.architecture.threads

    @property
    def room(self) -> int:
        """The most bytes that PyTorch's allocator can reserve on it."""
        return self.capacity - self.context

    @property
    def endless(self) -> "Card":
        """One with the same kernels and room for everything."""
        return replace(self, capacity=_ENDLESS)

    @property
    def is_endless(self) -> bool:
        """True of such a card."""
        return self.capacity == _ENDLESS

    @property
    def has_flash_attention(self) -> bool:
        """True if PyTorch's FlashAttention kernel runs on it."""
        return self.sm >= 80

    @property
    def bf16(self) -> bool:
        """True if it computes in bfloat16 (before sm_80 CUDA only emulates it)."""
        return self.sm >= 80

    @property
    def assumption(self) -> str:
        """A sentence on what a description left open, or ``""``."""
        if not self.taken_from:
            return ""
        return (
            f"What {self.name!r} does not say of the card, as CUDA's context and its speeds, is that of the "
            f"{self.taken_from}, the nearest of sm_{self.sm} that memlab knows."
        )


@dataclass(frozen=True)
class _Chip:
    """Part of a :class:`Card`."""

    sm: int
    processors: int
    width: int
    clocks: tuple[int, int]


def _card(name: str, driver_name: str, chip: _Chip, *, capacity: str, context: str, speed: Speed) -> Card:
    return Card(
        name,
        driver_name,
        parse_bytes(capacity),
        parse_bytes(context),
        chip.sm,
        chip.processors,
        chip.width,
        chip.clocks,
        speed,
    )


def _speed(
    fp32: float,
    tf32: float,
    fp16: float,
    bf16: float,
    memory: float,
    bus: float,
    *,
    cache: int,
    nvlink: float | None = None,
    network: float = TEN_GIGABIT,
) -> Speed:
    """From TFLOP/s, then GB/s, then MiB."""
    flops = TERA * fp32, TERA * tf32, TERA * fp16, TERA * bf16
    of_bytes = GIGA * memory, GIGA * bus, GIGA * (nvlink or bus), GIGA * network
    return Speed(*flops, *of_bytes, MIB * cache)


# Capacities are those that PyTorch prints, in OOM messages and device properties; they differ by some tenths of a
# GiB between drivers, and the lower of those seen stands here. The context is what a process held beyond what
# PyTorch had reserved ("Process X has X in use. Y allocated, Z reserved but unallocated": X - Y - Z); where no such
# message was found for a card (marked est.), it is that of the nearest card of its generation. Sources are issues of
# repositories on GitHub; where a log is quoted, its text was found by a full-text search of public repositories.
#
# Multiprocessors, caches, the memory's bus and clocks are those of the sheets that are named for the speeds, and where
# the driver's own were found (``cudaDeviceProp`` in a repository or a log, named as the driver's), those. Some sheets
# were read in others' copies: Lightning's fabric/utilities/throughput.py (RTX 3090, RTX A6000, A10, L40, A100, H100
# PCIe, H100 NVL), stas00/ml-engineering (A100, H100 PCIe), archive-lib.hpctech.co.jp (H100 PCIe), mullet.se (L40),
# atineoSE/coding-model-seeks-gpu (RTX 6000 Ada, RTX PRO 6000, GH200) and fibermall.com (HGX B300).
#
# Speeds are dense, at boost clock: TFLOP/s in float32, TF32, float16 and bfloat16, then GB/s of memory and of the bus,
# then MiB of cache. Sparse figures are halved. Of GeForce cards the figures with sums in float32 stand here: PyTorch
# sums so. Half of what a sheet gives for PCIe in both directions is the bus, half of NVLink's the link; cards without
# NVLink, and those whose bridges join but two, send through the bus. Networks are those of NVIDIA's DGX of the time (an
# adapter for each card, of the V100 four) or of AWS's instance with eight of the cards; for all others Ethernet of 10
# Gbit/s is assumed.
CARDS = {
    card.name: card
    for card in (
        # capacity: CatVTON#133; context: leetgpu-challenges#52
        # speeds: NVIDIA T4 data sheet; Turing whitepaper; g4dn.metal
        _card(
            "T4",
            "Tesla T4",
            _Chip(sm=75, processors=40, width=256, clocks=(1590, 5001)),
            capacity="14.56 GiB",
            context="123 MiB",
            speed=_speed(8.1, 8.1, 65, 8.1, 320, 16, cache=4, network=12.5),
        ),
        # capacity: 16160 MiB, yolov5 at 9ac9ec34; context: est.
        # speeds: NVIDIA V100 data sheet, SXM2; Volta whitepaper; DGX-1
        _card(
            "V100",
            "Tesla V100-SXM2-16GB",
            _Chip(sm=70, processors=80, width=4096, clocks=(1530, 877)),
            capacity="15.78 GiB",
            context="300 MiB",
            speed=_speed(15.7, 15.7, 125, 15.7, 900, 16, cache=6, nvlink=150, network=50),
        ),
        # capacity: PhotoMaker#47; context: est.
        # speeds: NVIDIA Ampere GA102 whitepaper, for 28 multiprocessors at 1.78 GHz
        _card(
            "RTX 3060",
            "NVIDIA GeForce RTX 3060",
            _Chip(sm=86, processors=28, width=192, clocks=(1777, 7501)),
            capacity="11.76 GiB",
            context="288 MiB",
            speed=_speed(12.7, 12.7, 25.5, 25.5, 360, 32, cache=3),
        ),
        # capacity: club-3090#58; context: est., of the A10
        # speeds: NVIDIA Ampere GA102 whitepaper, in float16 a quarter of its 284 TOP/s in INT8; clocks: topcpu.net; the
        # driver's: Jumperkables/cuda-benchmarking, multiprocessors, bus and cache
        _card(
            "RTX 3090",
            "NVIDIA GeForce RTX 3090",
            _Chip(sm=86, processors=82, width=384, clocks=(1695, 9751)),
            capacity="23.56 GiB",
            context="288 MiB",
            speed=_speed(35.6, 35.6, 71, 71, 936, 32, cache=6),
        ),
        # capacity: log "4x NVIDIA GeForce RTX 4060 Ti, 16 GB each", 15.57 GiB in its OOM message; context: est., of the
        # RTX 4090
        # speeds: topcpu.net and cputronic.com, 8 lanes of PCIe 4; of tensor cores: est., 34 multiprocessors with the
        # RTX 4090's at 2.54 GHz
        _card(
            "RTX 4060 Ti 16GB",
            "NVIDIA GeForce RTX 4060 Ti",
            _Chip(sm=89, processors=34, width=128, clocks=(2535, 9001)),
            capacity="15.57 GiB",
            context="450 MiB",
            speed=_speed(22.1, 22.1, 44.1, 44.1, 288, 16, cache=32),
        ),
        # capacity: Kolors#11; context: est., of the RTX 4090
        # speeds: hmc-tech.com; cache: TechPowerUp, of the whole AD104; of tensor cores: est., 60 multiprocessors with
        # the RTX 4090's at 2.61 GHz; the driver's: SCRE4MIE/CUDA, multiprocessors
        _card(
            "RTX 4070 Ti",
            "NVIDIA GeForce RTX 4070 Ti",
            _Chip(sm=89, processors=60, width=192, clocks=(2610, 10501)),
            capacity="11.70 GiB",
            context="450 MiB",
            speed=_speed(40.1, 40.1, 80.2, 80.2, 504, 32, cache=48),
        ),
        # capacity: log "total_memory=15934MB, multi_processor_count=66"; context: est., of the RTX 4090
        # speeds: topcpu.net; of tensor cores: est., 66 multiprocessors with the RTX 4090's at 2.61 GHz; the driver's:
        # log "total_memory=15974MB, multi_processor_count=66, L2_cache_size=48MB"
        _card(
            "RTX 4070 Ti SUPER",
            "NVIDIA GeForce RTX 4070 Ti SUPER",
            _Chip(sm=89, processors=66, width=256, clocks=(2610, 10501)),
            capacity="15934 MiB",
            context="450 MiB",
            speed=_speed(44.1, 44.1, 88.2, 88.2, 672, 32, cache=48),
        ),
        # capacity: 25262096384 bytes, ComfyUI#7063; context: SoulX-FlashTalk#5
        # speeds: NVIDIA Ada GPU architecture whitepaper
        _card(
            "RTX 4090",
            "NVIDIA GeForce RTX 4090",
            _Chip(sm=89, processors=128, width=384, clocks=(2520, 10501)),
            capacity="25262096384 B",
            context="450 MiB",
            speed=_speed(82.6, 82.6, 165.2, 165.2, 1008, 32, cache=72),
        ),
        # capacity: 16303 MiB, rif42/P0-safety at c210c5c8; context: est.
        # speeds: NVIDIA RTX Blackwell GPU architecture whitepaper
        _card(
            "RTX 5080",
            "NVIDIA GeForce RTX 5080",
            _Chip(sm=120, processors=84, width=256, clocks=(2617, 15001)),
            capacity="16303 MiB",
            context="595 MiB",
            speed=_speed(56.3, 56.3, 112.6, 112.6, 960, 64, cache=64),
        ),
        # capacity and context: Wan2.1#465
        # speeds: NVIDIA RTX Blackwell GPU architecture whitepaper
        _card(
            "RTX 5090",
            "NVIDIA GeForce RTX 5090",
            _Chip(sm=120, processors=170, width=512, clocks=(2407, 14001)),
            capacity="31.37 GiB",
            context="595 MiB",
            speed=_speed(104.8, 104.8, 209.5, 209.5, 1792, 64, cache=96),
        ),
        # capacity: 48670 MiB, without ECC (with it 44.55 GiB), ultralytics#19084; context: est., of the A10
        # speeds: NVIDIA Ampere GA102 whitepaper, float16 in torchtitan too; clocks: sysrqmts.com
        _card(
            "RTX A6000",
            "NVIDIA RTX A6000",
            _Chip(sm=86, processors=84, width=384, clocks=(1800, 8001)),
            capacity="48670 MiB",
            context="288 MiB",
            speed=_speed(38.7, 77.4, 154.8, 154.8, 768, 32, cache=6),
        ),
        # capacity: log "(NVIDIA RTX 6000 Ada Generation, 48520MiB)", without ECC (with it 44.43 GiB); context:
        # MTVCrafter#21
        # speeds: NVIDIA RTX 6000 Ada data sheet, a quarter of its 1457 TFLOP/s of sparse FP8 in float16, half of that
        # in TF32; clock and cache: cputronic.com
        _card(
            "RTX 6000 Ada",
            "NVIDIA RTX 6000 Ada Generation",
            _Chip(sm=89, processors=142, width=384, clocks=(2505, 10001)),
            capacity="48520 MiB",
            context="429 MiB",
            speed=_speed(91.1, 182.1, 364.2, 364.2, 960, 32, cache=96),
        ),
        # capacity: ds4#431; context: log "11.93 GiB memory in use. Of the allocated memory 11.24 GiB" of a card of
        # 94.97 GiB
        # speeds: NVIDIA RTX PRO 6000 Blackwell Workstation Edition data sheet; of tensor cores, and clock:
        # hmc-tech.com; the driver's: log "name='NVIDIA RTX PRO 6000 Blackwell Server Edition', major=12, minor=0,
        # total_memory=97250MB, multi_processor_count=188, L2_cache_size=128MB"
        _card(
            "RTX PRO 6000",
            "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
            _Chip(sm=120, processors=188, width=512, clocks=(2617, 14001)),
            capacity="94.97 GiB",
            context="692 MiB",
            speed=_speed(126, 251.9, 503.8, 503.8, 1792, 64, cache=128),
        ),
        # capacity: 23921033216 bytes, and context (at most): ComfyUI#10246
        # speeds: NVIDIA L4 data sheet; Ada whitepaper; g6.48xlarge
        _card(
            "L4",
            "NVIDIA L4",
            _Chip(sm=89, processors=58, width=192, clocks=(2040, 6251)),
            capacity="23921033216 B",
            context="189 MiB",
            speed=_speed(30.3, 60, 121, 121, 300, 32, cache=48, network=12.5),
        ),
        # capacity: CogVLM#236 and 23609475072 bytes, aalanwyr/face2cuda; context: MiniCPM-V#640
        # speeds: NVIDIA A10 data sheet; the driver's: face2cuda, clock, bus and cache
        _card(
            "A10",
            "NVIDIA A10",
            _Chip(sm=86, processors=72, width=384, clocks=(1695, 6251)),
            capacity="23609475072 B",
            context="288 MiB",
            speed=_speed(31.2, 62.5, 125, 125, 600, 32, cache=6),
        ),
        # capacity: 22587 MiB, TorchCodec's CUDA tutorial; context: of an A10, MiniCPM-V#640
        # speeds: NVIDIA A10G data sheet; GA102 whitepaper; g5.48xlarge
        _card(
            "A10G",
            "NVIDIA A10G",
            _Chip(sm=86, processors=80, width=384, clocks=(1710, 6251)),
            capacity="22587 MiB",
            context="288 MiB",
            speed=_speed(35, 35, 70, 70, 600, 32, cache=6, network=12.5),
        ),
        # capacity and context: Qwen3-VL#2097
        # speeds: NVIDIA L40 data sheet; clocks and cache: topcpu.net
        _card(
            "L40",
            "NVIDIA L40",
            _Chip(sm=89, processors=142, width=384, clocks=(2490, 9001)),
            capacity="44.40 GiB",
            context="507 MiB",
            speed=_speed(90.5, 90.5, 181, 181, 864, 32, cache=96),
        ),
        # capacity and context: Step-Video-T2V#8
        # speeds: NVIDIA L40S data sheet; Ada whitepaper; g6e.48xlarge
        _card(
            "L40S",
            "NVIDIA L40S",
            _Chip(sm=89, processors=142, width=384, clocks=(2520, 9001)),
            capacity="44.42 GiB",
            context="419 MiB",
            speed=_speed(91.6, 183, 362, 362, 864, 32, cache=96, network=50),
        ),
        # capacity: 42298834944 bytes, bottlerocket#3873; context: CoSeR#10
        # speeds: NVIDIA A100 data sheet, SXM; DGX A100
        _card(
            "A100-40GB",
            "NVIDIA A100-SXM4-40GB",
            _Chip(sm=80, processors=108, width=5120, clocks=(1410, 1215)),
            capacity="42298834944 B",
            context="501 MiB",
            speed=_speed(19.5, 156, 312, 312, 1555, 32, cache=40, nvlink=300, network=200),
        ),
        # capacity: 81051 MiB, ultralytics#22877; context: Control-GIC#6
        # speeds: NVIDIA A100 data sheet, SXM; DGX A100
        _card(
            "A100-80GB",
            "NVIDIA A100-SXM4-80GB",
            _Chip(sm=80, processors=108, width=5120, clocks=(1410, 1593)),
            capacity="81051 MiB",
            context="503 MiB",
            speed=_speed(19.5, 156, 312, 312, 2039, 32, cache=40, nvlink=300, network=200),
        ),
        # capacity: log "name='NVIDIA A100-PCIE-40GB', major=8, minor=0, total_memory=40326MB" (40385 MiB,
        # ultralytics#18492); context: est., of the A100-40GB
        # speeds: NVIDIA A100 data sheet, PCIe; the driver's: caps-tum/mt4g
        _card(
            "A100-PCIe-40GB",
            "NVIDIA A100-PCIE-40GB",
            _Chip(sm=80, processors=108, width=5120, clocks=(1410, 1215)),
            capacity="40326 MiB",
            context="501 MiB",
            speed=_speed(19.5, 156, 312, 312, 1555, 32, cache=40),
        ),
        # capacity: log "(NVIDIA A100 80GB PCIe, 81154MiB)"; context: est., of the A100-80GB
        # speeds: NVIDIA A100 data sheet, PCIe; the memory's clock: of the sheet's 1935 GB/s on 5120 bits
        _card(
            "A100-PCIe-80GB",
            "NVIDIA A100 80GB PCIe",
            _Chip(sm=80, processors=108, width=5120, clocks=(1410, 1512)),
            capacity="81154 MiB",
            context="503 MiB",
            speed=_speed(19.5, 156, 312, 312, 1935, 32, cache=40),
        ),
        # capacity: HunyuanVideo-Avatar#6, and context (NCCL not excluded)
        # speeds: NVIDIA H100 data sheet, SXM5; Hopper whitepaper; DGX H100
        _card(
            "H100",
            "NVIDIA H100 80GB HBM3",
            _Chip(sm=90, processors=132, width=5120, clocks=(1980, 2619)),
            capacity="79.10 GiB",
            context="686 MiB",
            speed=_speed(67, 494.7, 989.4, 989.4, 3350, 64, cache=50, nvlink=450, network=400),
        ),
        # capacity: log "name='NVIDIA H100 PCIe', major=9, minor=0, total_memory=81008MB"; context: est., of the H100
        # speeds: Hopper whitepaper, PCIe; clocks: NVIDIA's product brief PB-11133 and cputronic.com; the driver's: the
        # log of the capacity, "multi_processor_count=114"
        _card(
            "H100 PCIe",
            "NVIDIA H100 PCIe",
            _Chip(sm=90, processors=114, width=5120, clocks=(1755, 1593)),
            capacity="81008 MiB",
            context="686 MiB",
            speed=_speed(51.2, 378, 756, 756, 2000, 64, cache=50),
        ),
        # capacity and context: VACE#56
        # speeds: NVIDIA H100 data sheet, NVL; the driver's: caps-tum/mt4g, multiprocessors, cache, clocks and bus (of
        # which NVIDIA's product brief gives 6016 bits)
        _card(
            "H100 NVL",
            "NVIDIA H100 NVL",
            _Chip(sm=90, processors=132, width=6144, clocks=(1785, 2619)),
            capacity="93.00 GiB",
            context="676 MiB",
            speed=_speed(60, 417.5, 835.5, 835.5, 3938, 64, cache=60),
        ),
        # capacity: DiffSynth-Studio#1238; context: est., of the H200
        # speeds: NVIDIA's figures as the press has them (zangshuxian.com, willitrunai.com; float16 in torchtitan too;
        # in float32 more than 78 multiprocessors do at the clock here); the driver's: log "name='NVIDIA H20', major=9,
        # minor=0, total_memory=97285MB, multi_processor_count=78"; cache (ke60.top has 60 MB too) and clock: est., of
        # the H200; of the memory: est., of the H100 NVL, whose clock makes the 4.0 TB/s; networks as of the H100
        _card(
            "H20",
            "NVIDIA H20",
            _Chip(sm=90, processors=78, width=6144, clocks=(1980, 2619)),
            capacity="95.00 GiB",
            context="684 MiB",
            speed=_speed(44, 74, 148, 148, 4000, 64, cache=60, nvlink=450, network=400),
        ),
        # capacity: log "reported as `NVIDIA GH200 480GB` with 94.50 GiB visible HBM" (94.88 GiB, litgpt#1892); context:
        # litgpt#1892
        # speeds: NVIDIA GH200 data sheet, NVLink-C2C to its own host; the driver's: mredenti/PowerCapping,
        # multiprocessors and clock, and log "sm_count": 132, "l2_bytes": 62914560; bus and clock of the memory: est.,
        # of the H100 NVL, which make the sheet's 4 TB/s; link (not checked) and networks as of the H100
        _card(
            "GH200",
            "NVIDIA GH200 480GB",
            _Chip(sm=90, processors=132, width=6144, clocks=(1980, 2619)),
            capacity="94.50 GiB",
            context="758 MiB",
            speed=_speed(67, 494.7, 989.4, 989.4, 4000, 450, cache=60, nvlink=450, network=400),
        ),
        # measured, driver 580.159.04; the context after a matrix product and a convolution, 610 MiB before any
        # speeds: NVIDIA H200 data sheet, SXM; DGX H200; its cache as the driver gives it
        _card(
            "H200",
            "NVIDIA H200",
            _Chip(sm=90, processors=132, width=6144, clocks=(1980, 3201)),
            capacity="150109880320 B",
            context="684 MiB",
            speed=_speed(67, 494.7, 989.4, 989.4, 4800, 64, cache=60, nvlink=450, network=400),
        ),
        # capacity and context: stas00/ml-engineering, debug/pytorch.md
        # speeds: NVIDIA Blackwell data sheet, HGX B200; DGX B200; of the memory: the driver's, log "7.67 TB/s peak
        # bandwidth (bus width 7680-bit, mem clock 3996 MHz)" (NVIDIA gives 8 TB/s, some of its tables 7.7)
        _card(
            "B200",
            "NVIDIA B200",
            _Chip(sm=100, processors=148, width=7680, clocks=(1965, 3996)),
            capacity="178.35 GiB",
            context="712 MiB",
            speed=_speed(80, 1125, 2250, 2250, 7672, 64, cache=126, nvlink=900, network=400),
        ),
        # capacity: log "name: NVIDIA B300 SXM6 AC totalGlobalMem: 274113 MiB memoryBusWidth: 7680 bits l2CacheSize: 126
        # MiB multiProcessorCount: 148 memoryClockRate: 3996000 kHz"; context: est., of the B200
        # speeds: NVIDIA's table of HGX B300; of the memory: of that bus (NVIDIA gives 8 TB/s, HGX B300 has 7.7); hosts
        # of DGX B300 (PCIe 5, 800 GBit/s a card)
        _card(
            "B300",
            "NVIDIA B300 SXM6 AC",
            _Chip(sm=103, processors=148, width=7680, clocks=(2032, 3996)),
            capacity="274113 MiB",
            context="712 MiB",
            speed=_speed(75, 1125, 2250, 2250, 7672, 64, cache=126, nvlink=900, network=800),
        ),
    )
}
