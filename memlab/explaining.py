"""``explain``: an out-of-memory message of PyTorch's, from anybody's log, in plain words: why, and what to do.

The wordings are those of ``CUDACachingAllocator.cpp`` from PyTorch 1.0 on (pytorch/pytorch#13751, #99699, #124673) and
of its relatives for AMD and Apple.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

from memlab.errors import BadValue
from memlab.text import capital
from memlab.units import format_bytes, parse_bytes

_SIZE = r"(\d+(?:\.\d+)? ?(?:bytes|[KMGT]i?B))"
# The first group of the first pattern that is found, for each figure.
_FIGURES = {
    "asked": (rf"ried to allocate:? {_SIZE}",),
    "capacity": (rf"total capaci?ty of {_SIZE}", rf"{_SIZE} total capacity"),
    "free": (rf"of which {_SIZE} is free", rf"{_SIZE} free[;)]"),
    "allocated": (rf"{_SIZE} is allocated by PyTorch", rf"{_SIZE} already allocated", rf"MPS allocated: {_SIZE}"),
    "unallocated": (rf"{_SIZE} is reserved by PyTorch but unallocated", rf"{_SIZE} cached"),
    "reserved": (rf"{_SIZE} reserved in total",),
    "process": (rf"this process has {_SIZE} memory in use",),
    "allowed": (rf"{_SIZE} allowed;", rf"max allowed: {_SIZE}"),
    "elsewhere": (rf"other allocations: {_SIZE}",),
}
_OTHER = re.compile(rf"Process \d+ has {_SIZE} memory in use")
_ANCHOR = re.compile(r"ried to allocate:? \d")
_GPU = re.compile(r"GPU (\d+)(?: has a total|;)")
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in \S+')
_LIBRARY = re.compile(r"/(?:site-packages|dist-packages|torch|lib/python[\d.]+)/")
_OPTIMIZER = re.compile(r"/(?:torch|bitsandbytes)/optim/")
# Of messages without figures: what each is the reason for. The first in a text counts, "unknown" only alone.
_WITHOUT_FIGURES = {
    "shared memory": re.compile(r"killed by signal: Bus error|insufficient shared memory"),
    "worker": re.compile(r"DataLoader worker.{0,40}(killed by signal: Killed|exited unexpectedly)"),
    "killed": re.compile(
        r"oom[-_ ]?kill|Killed process|exit ?code:? -9\b|SIGKILL|\b\d+ Killed\b|(?:^| )Killed$", re.IGNORECASE
    ),
    "host": re.compile(r"can(?:not|'t) allocate memory", re.IGNORECASE),
    "library": re.compile(
        r"CU[A-Z]+_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)|find a valid cuDNN algorithm|unable to find an engine|"
        r"Failed to CUDA [cm]alloc"
    ),
    "unknown": re.compile(r"out of memory|OUT_OF_MEMORY", re.IGNORECASE),
}
_OLD = re.compile(rf"{_SIZE} already allocated")  # as PyTorch wrote before 2.1, which has expandable segments
CRUMBS = 20  # a full card has less than this part (one in so many) of its tensors' bytes free between them
LIBRARIES = 10  # what NCCL and CUDA's libraries take is mostly less than this part (one in so many) of the card
_CONTEXT = 1 << 30  # bytes: what CUDA itself takes at most, where nobody says how much the process has

_REASONS = {
    "full": "so the tensors themselves do not fit",
    "fragmentation": "so there are enough bytes, but not in one piece: the memory is fragmented",
    "other processes": "so other processes hold the rest: another run, a notebook's kernel, or one that has not ended",
    "this process": (
        "so this process itself holds the rest, outside of PyTorch: a library with an allocator of its own, or NCCL"
    ),
    "larger than the card": "so this one tensor is larger than the whole card, and freeing the rest does not help",
    "limit": "so there is room on the card, but the process may not have it: somebody has set a limit",
    "refused": "so there was room, and the driver refused it all the same",
    "host": "and it was the computer's own memory that ran out, not the GPU's",
    "library": "for cuBLAS, cuDNN or another library of CUDA's, which takes its memory beside PyTorch's",
    "unknown": "and the message has no figures, so it does not say whose memory was full",
    "worker": (
        "A worker process of the DataLoader was ended, mostly by Linux because the host's memory was full, not the "
        "GPU's: `dmesg` then tells of oom-kill."
    ),
    "killed": (
        "The process was ended from outside, mostly by Linux because the host's memory was full, not the GPU's: "
        "`dmesg`, or the log of the job, then tells of oom-kill."
    ),
    "shared memory": (
        "Workers of a DataLoader hand their batches over in shared memory, /dev/shm, and that was full: it is the "
        "host's, not the GPU's, and a container has 64 MiB of it where nobody asked for more."
    ),
}
_WHOLE = {"worker", "killed", "shared memory"}  # which say all: no allocator of PyTorch's has told anything
EXPANDABLE = "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before Python starts"
_ADVICE = {
    "full": (
        "Make the batch smaller, and accumulate gradients for the same effective batch (notebook 03).",
        "Keep less for the backward pass: autocast (04; before Ampere to float16), checkpoint the blocks (06).",
        "Take a leaner optimizer or train fewer weights (09, 10); `memlab fit` looks for what fits.",
    ),
    "fragmentation": (
        capital(f"{EXPANDABLE}."),
        "Keep sizes alike: pad or bucket what varies in length. Or before the first step, make the optimizer's state "
        "and run the largest batch once (the solution of notebook 15).",
        "If it still fails, make the batch a little smaller; empty_cache() was tried before the message came.",
    ),
    "other processes": (
        "Look who is there with nvidia-smi, and end notebooks and runs that are over: a kernel keeps its memory.",
        "Choose another card with CUDA_VISIBLE_DEVICES, or keep data loader workers off the GPU.",
        "If the others must stay, plan with what is left: `memlab fit --budget`.",
    ),
    "this process": (
        "TensorFlow and JAX take most of a card when they start: set TF_FORCE_GPU_ALLOW_GROWTH=true, "
        "XLA_PYTHON_CLIENT_PREALLOCATE=false. Other libraries have a pool or a fraction to set (CuPy, RAPIDS, vLLM).",
        "Print torch.cuda.mem_get_info() after each import and each set-up: free bytes fall where it is taken.",
        "Run what needs an allocator of its own in another process, on another card.",
    ),
    "larger than the card": (
        "Go to the line in the traceback and print the shapes there: often one dimension is not what was meant.",
        "Do not make that tensor whole: fused attention and a loss in chunks (notebook 13), pieces of the input.",
        "Only then make batch, sequence or image smaller.",
    ),
    "limit": (
        "Look for set_per_process_memory_fraction, or per_process_memory_fraction in PYTORCH_CUDA_ALLOC_CONF.",
        "Raise the limit, if nobody else needs the card.",
        "Else make the run fit below it: `memlab fit --budget` with that many bytes.",
    ),
    "refused": (
        "Look at the computer's own memory: on Windows and WSL a full RAM or page file refuses memory of the GPU.",
        "Watch nvidia-smi while it fails: another process may have had the card for a moment.",
        "Try again in a new process with nothing else on the card; if it stays so, with another driver.",
    ),
    "host": (
        "Look what the data loader keeps: fewer workers, no data set copied to each of them (notebook 12).",
        "Load checkpoints with mmap=True, and models on the meta device first (notebook 11).",
        "Check that nothing meant for the GPU stayed on the CPU.",
    ),
    "killed": (
        "Look what the host holds: whole data sets and checkpoints, workers, what is offloaded (notebooks 11, 12).",
        "Load checkpoints with mmap=True, and on one rank at a time: each process has a copy of its own.",
        "Give the container, or the job, more memory: with `docker run --memory`, or SLURM's `--mem`.",
    ),
    "worker": (
        "Use fewer workers, or a smaller prefetch_factor: each holds batches of its own (notebook 12).",
        "Keep names and labels in an array, not in a Python list: each forked worker copies a list as it reads it.",
        "Give the container, or the job, more memory: with `docker run --memory`, or SLURM's `--mem`.",
    ),
    "shared memory": (
        "Give the container more of it: `docker run --shm-size=8g`, or `--ipc=host`.",
        "Use fewer workers, a smaller prefetch_factor or smaller batches: what waits for the loop lies there.",
        "With num_workers=0 nothing is handed over.",
    ),
    "unknown": (
        "Look at nvidia-smi: how much is in use before your process starts?",
        "Run it again with CUDA_LAUNCH_BLOCKING=1: the line that is named may not be the one that failed.",
        "Leave room for libraries: cuBLAS and cuDNN allocate outside of PyTorch, so use a slightly smaller batch.",
    ),
    "library": (
        "Leave it room: PyTorch keeps what it has freed, so make the batch a little smaller.",
        "Or let PyTorch have less than all: torch.cuda.set_per_process_memory_fraction(0.95).",
        "If memory was not full, run it with CUDA_LAUNCH_BLOCKING=1: an index out of range can end in this message.",
    ),
}  # fmt: skip
# Instead of the first line, where the message is of a PyTorch without expandable segments.
_FOR_OLD = (
    "Install PyTorch 2.1 or later, and set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before Python starts; "
    "until then max_split_size_mb:128, if the message names max_split_size_mb."
)


# Instead of what is said of a full card, where the optimizer made its state: the activations are gone by then.
_FOR_OPTIMIZER = (
    "Take a leaner optimizer: of 8 bits, fused, or one that keeps less for each weight (notebook 10).",
    "Train fewer weights (09), or share their state among cards (18); offload it where time does not matter (11).",
    "A smaller batch hardly helps: the activations were free already when the optimizer made its state.",
)


@dataclass(frozen=True)
class Explanation:
    """The figures of an out-of-memory message, in bytes, None where it does not say.

    Attributes:
        asked: what PyTorch wanted in one piece.
        capacity, free: of the card.
        allocated: in tensors of this process.
        unallocated: held by PyTorch between them.
        others: what neither is free nor held by this process's PyTorch.
        reason: ``"full"``, ``"fragmentation"``, ``"other processes"``, ``"this process"`` (outside of PyTorch),
            ``"larger than the card"``, ``"limit"``, ``"refused"``, ``"host"``, ``"killed"``, ``"worker"``,
            ``"shared memory"``, ``"library"`` or ``"unknown"``.
        is_old: whether the message is of a PyTorch before 2.1.
        gpu: the number of the card.
        line: of the user's code, ``"train.py:12"``, by the traceback before the message; ``""`` without one.
        in_optimizer: whether the traceback ends in an optimizer.
        messages: how many different ones the text has, of which this is the last.
    """

    asked: int | None
    capacity: int | None
    free: int | None
    allocated: int | None
    unallocated: int | None
    others: int | None
    reason: str
    is_old: bool = False
    gpu: int | None = None
    line: str = ""
    in_optimizer: bool = False
    messages: int = 1

    @property
    def paragraph(self) -> str:
        """Say what happened, and why."""
        if self.reason in _WHOLE:
            return _REASONS[self.reason]
        asked = "more memory" if self.asked is None else format_bytes(self.asked)
        whose = (
            "this process's outside of PyTorch" if self.reason == "this process" else "CUDA's own or other programs'"
        )
        parts = [
            f"of {format_bytes(self.capacity)} on the card" if self.capacity is not None else "",
            f"{format_bytes(self.free)} was free" if self.free is not None else "",
            f"tensors had {format_bytes(self.allocated)}" if self.allocated is not None else "",
            f"PyTorch held {format_bytes(self.unallocated)} between them" if self.unallocated is not None else "",
            f"{format_bytes(self.others)} was {whose}" if self.others else "",
        ]
        figures = capital(", ".join(filter(None, parts)))
        reason = _REASONS[self.reason]
        if self.reason == "full" and self.asked and (self.free or 0) + (self.unallocated or 0) >= self.asked:
            reason = (
                "so the card is full of tensors: what is free and unallocated would be enough in all, but lies in "
                "small pieces between them, as on every full card"
            )
        told = f". {figures}, {reason}" if figures else f", {reason}"
        return " ".join(filter(None, (f"PyTorch asked for {asked}{told}.", self._place)))

    @property
    def _place(self) -> str:
        """Say where it was, in a sentence, as far as the text has more than the message."""
        parts = [
            f"at {self.line}" if self.line else "",
            "in the optimizer" if self.in_optimizer else "",
            f"on GPU {self.gpu}" if self.gpu is not None and (self.gpu or self.messages > 1) else "",
            f"the last of {self.messages} different messages in the text" if self.messages > 1 else "",
        ]
        known = ", ".join(filter(None, parts))
        return known and f"That was {known}."

    @property
    def advice(self) -> tuple[str, ...]:
        """List what to do, in this order."""
        if self.reason == "full" and self.in_optimizer:
            return _FOR_OPTIMIZER
        first, *others = _ADVICE[self.reason]
        return (_FOR_OLD if self.is_old and self.reason == "fragmentation" else first, *others)

    @property
    def steps(self) -> tuple[str, ...]:
        """The advice, a numbered line each."""
        return tuple(f"{number}. {text}" for number, text in enumerate(self.advice, 1))

    def __str__(self) -> str:
        return "\n".join([self.paragraph, *self.steps])

    def _repr_markdown_(self) -> str:
        return str(self).replace("\n", "\n\n", 1)


def explain(text: str) -> Explanation:
    """Explain the last out-of-memory message in a text, such as the end of a log: what came before was survived.

    Memory is fragmented where what is free and what PyTorch holds unallocated would be enough together, and the latter
    is more than the crumbs of every full card: at least a twentieth of what is allocated.

    Raises:
        BadValue: there is none in it.
    """
    plain = re.sub(r"\[rank\d+\]:", " ", text)
    plain = " ".join(plain.split())
    places = [match.start() for match in _ANCHOR.finditer(plain)]
    matches = {reason: pattern.search(plain) for reason, pattern in _WITHOUT_FIGURES.items()}
    found = {reason: match.start() for reason, match in matches.items() if match}
    if places and found.get("killed", 0) < places[-1]:
        ends = [*places[1:], len(plain)]
        figures = [_from_figures(plain[_start(plain, place) : end]) for place, end in zip(places, ends, strict=True)]
        before = plain[places[-2] if len(places) > 1 else 0 : places[-1]]
        return replace(figures[-1], messages=len(set(figures)), **_traced(before))
    if len(found) > 1:
        found.pop("unknown", None)
    if found:
        return Explanation(None, None, None, None, None, None, min(found, key=lambda reason: found[reason]))
    last = text.strip().rpartition("\n")[2].strip()
    raise BadValue(
        f"The text that ends in {last[:80]!r} has no out-of-memory message in it: give the text of the error, from "
        "'CUDA out of memory' on."
    )


def _start(plain: str, place: int) -> int:
    """Return where the message begins that asks for memory at a place: some have figures before."""
    earliest = max(0, place - 200)
    return max(earliest, plain.rfind("out of memory", earliest, place))


def _traced(before: str) -> dict[str, Any]:
    """Return what the traceback before a message says of its place."""
    frames = [(match[1], match[2]) for match in _FRAME.finditer(before)]
    own = [f"{file.rpartition('/')[2]}:{line}" for file, line in frames if not _LIBRARY.search(file)]
    return {"line": own[-1] if own else "", "in_optimizer": bool(frames and _OPTIMIZER.search(frames[-1][0]))}


def _from_figures(message: str) -> Explanation:
    found = {name: _first(patterns, message) for name, patterns in _FIGURES.items()}
    asked, capacity, free = found["asked"], found["capacity"], found["free"]
    allocated, unallocated = found["allocated"], found["unallocated"]
    if unallocated is None and found["reserved"] is not None and allocated is not None:
        unallocated = found["reserved"] - allocated
    others = found["elsewhere"]
    if capacity is not None and free is not None:
        others = max(0, capacity - free - (allocated or 0) - (unallocated or 0))
    known = Explanation(asked, capacity, free, allocated, unallocated, others, "full")
    reserved = (allocated or 0) + (unallocated or 0)
    foreign = _foreign(message, found["process"], reserved, others or 0)
    outside = max(0, (found["process"] or 0) - reserved - _CONTEXT)
    reason = _reason(known, found["allowed"], foreign, outside, message)
    gpu = _GPU.search(message)
    return replace(known, reason=reason, is_old=bool(_OLD.search(message)), gpu=int(gpu[1]) if gpu else None)


def _foreign(message: str, process: int | None, reserved: int, others: int) -> int:
    """Bytes that other processes have."""
    listed = sorted(_bytes(match[1]) for match in _OTHER.finditer(message))
    if process is None and listed and listed[-1] >= reserved:
        listed.pop()  # in a container PyTorch does not know itself by its number
    if process is not None or listed:
        return max(sum(listed), others - max(_CONTEXT, (process or 0) - reserved))
    return max(0, others - _CONTEXT)


def _reason(known: Explanation, allowed: int | None, foreign: int, outside: int, message: str) -> str:
    asked = known.asked or 0
    free, unallocated = known.free or 0, known.unallocated or 0
    if "CPUAllocator" in message:
        return "host"
    if known.capacity is None:
        return "unknown" if allowed is None else "full"  # Apple's, which only have a limit
    if asked > known.capacity:
        return "larger than the card"
    if known.free is not None and free >= asked:
        return "limit" if allowed is not None else "refused"
    if foreign and foreign + free >= asked and foreign > unallocated:
        return "other processes"
    if outside * LIBRARIES >= known.capacity and outside + free >= asked and outside > unallocated:
        return "this process"
    return "fragmentation" if is_fragmented(asked, free, unallocated, known.allocated or 0) else "full"


def is_fragmented(asked: int, free: int, unallocated: int, allocated: int) -> bool:
    """True if a request (all in bytes) failed for want of one piece rather than of bytes: see :func:`explain`."""
    return unallocated + free >= asked and unallocated * CRUMBS >= allocated


def failed_request(asked: int, free: int | None, allocated: int, unallocated: int) -> Explanation:
    """Explain a request of which the figures are known, in bytes, but not the card's capacity.

    Where more is free than was asked for, a limit that somebody has set is the likely reason.
    """
    reason = "fragmentation" if is_fragmented(asked, free or 0, unallocated, allocated) else "full"
    if free is not None and free >= asked:
        reason = "limit"
    return Explanation(asked, None, free, allocated, unallocated, None, reason)


def _first(patterns: tuple[str, ...], message: str) -> int | None:
    found = (re.search(pattern, message) for pattern in patterns)
    return next((_bytes(match[1]) for match in found if match), None)


def _bytes(size: str) -> int:
    """PyTorch divides by 1024, also where it writes GB. Zero is no size to :func:`parse_bytes`."""
    number, unit = re.fullmatch(r"([\d.]+) ?(\w+)", size).groups()  # type: ignore[union-attr]  # as it was found
    factor = 1 if unit == "bytes" else parse_bytes(f"1 {unit[0]}iB")
    return round(float(number) * factor)
