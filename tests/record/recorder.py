"""Run cases on a device, and keep what each took in one file."""

import gzip
import json
import os
import platform
import statistics
import subprocess
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from memlab.devices import Cuda, Device
from memlab.errors import MemlabError
from memlab.files import write_atomically
from memlab.run import Run
from memlab.trace import Category, Trace
from memlab.versions import __version__
from tests.loops.case import Case
from tests.record.card import facts, set_allocator
from tests.record.counting import bring_level
from tests.record.events import EventRecorder

FORMAT = 1
ALLOCATOR_VARIABLE = "PYTORCH_ALLOC_CONF"
ALLOCATOR_DEFAULTS = "expandable_segments:False,large_segment_size_mb:20"  # all others, any settings put back
STEPS = 6  # unwatched; the first sets up
WATCHED = 8  # three X-rayed, the rest plain
STEPS_WITHOUT_CLOCK = 3  # of either, where a device does not compute: from the third on nothing is new but time
EVENTS = ".events.json.gz"  # how the files end that hold the allocator's own trace of one case


class NotARecording(MemlabError, ValueError):
    """A file that this module did not write, or one of another device."""


def record(
    cases: Iterable[Case], device: Device, file: Path, *, seconds: float, say: Callable[[str], None]
) -> dict[str, Any]:
    """Record the cases that the file does not have yet, and write the file after each.

    A case that fails is kept with its error. No case is begun that would, going by the longest so far, end after
    ``seconds``.

    Args:
        cases: what to record, in this order.
        device: where.
        file: JSON, or ``.json.gz``, begun or gone on with.
        seconds: how long the whole may take.
        say: is told how each case went.

    Raises:
        NotARecording: the file is something else, or of another device.
    """
    recording = _read_or_begin(file, device)
    begun, longest = time.monotonic(), 0.0
    for case in cases:
        if case.name in recording["cases"]:
            continue
        if time.monotonic() - begun + longest > seconds:
            say(f"out of time before {case.name}: run the same again to go on")
            break
        case_begun = time.monotonic()
        recording["cases"][case.name] = result = _record_case(case, device, file)
        longest = max(longest, time.monotonic() - case_begun)
        write_atomically(file, _packed(_text(recording), file))
        say(f"{case.name}: {_summary(result)}")
    return recording


def read(file: Path) -> dict[str, Any]:
    """A recording.

    Raises:
        NotARecording: the file is something else.
    """
    try:
        recording = json.loads(_unpacked(file))
        found = recording["memlab_recording"]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise NotARecording(
            f"{file} is not a recording ({error}): give a file that python -m tests.record wrote."
        ) from None
    if found != FORMAT:
        raise NotARecording(f"{file} is a recording of format {found!r}, this memlab reads {FORMAT}: record it again.")
    return recording


def recordings_in(folder: Path) -> list[Path]:
    """The recordings in a folder, by name; files of events stand beside them."""
    found = (*folder.glob("*.json"), *folder.glob("*.json.gz"))
    return sorted(file for file in found if not file.name.endswith(EVENTS))


@contextmanager
def allocator_settings(settings: str, device: Device) -> Iterator[None]:
    """Run with these settings of PyTorch's allocator, as in ``"expandable_segments:True"``; ``""`` for its defaults."""
    if not settings:
        yield
        return
    before = os.environ.get(ALLOCATOR_VARIABLE)
    try:
        os.environ[ALLOCATOR_VARIABLE] = settings  # for the virtual GPU
        _tell_allocator(settings, device)
        yield
    finally:
        if before is None:
            del os.environ[ALLOCATOR_VARIABLE]
        else:
            os.environ[ALLOCATOR_VARIABLE] = before
        _tell_allocator(ALLOCATOR_DEFAULTS, device)


def _tell_allocator(settings: str, device: Device) -> None:
    device.release()  # what is cached was cut by the old rules
    if device.source != "predicted":
        set_allocator(device.device, settings)


def _read_or_begin(file: Path, device: Device) -> dict[str, Any]:
    if not file.exists():
        return {"memlab_recording": FORMAT, **_machine(device), "cases": {}}
    recording = read(file)
    if recording["device"] != device.name:
        raise NotARecording(
            f"{file} is a recording of {recording['device']}, this device is {device.name}: give another file."
        )
    return recording


def _machine(device: Device) -> dict[str, Any]:
    return {
        "source": device.source,
        "device": device.name,
        "memlab": __version__,
        "commit": _ask("git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **({} if device.source == "predicted" else facts(device.device)),
    }


def _ask(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _record_case(case: Case, device: Device, file: Path) -> dict[str, Any]:
    result: dict[str, Any] = {"loop": case.loop.__name__, "settings": dict(case.settings), "holdout": case.holdout}
    if case.allocator:
        result["allocator"] = case.allocator
    try:
        with allocator_settings(case.allocator, device):
            result |= _unwatched(case, device)
            result |= _watched(case, device)
            if case.events and isinstance(device, Cuda) and device.computes:
                result["events"] = _write_events(case, device, file)
    except Exception as error:  # the other cases may do better
        last = traceback.extract_tb(error.__traceback__)[-1]
        result["error"] = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {str(error)[:300]}"
    return result


def _unwatched(case: Case, device: Device) -> dict[str, Any]:
    """Peaks and seconds of steps that nobody looks into: bytes are [allocated, reserved] a step."""
    if device.source == "predicted":  # only a run that is watched can be predicted
        trace = Run(case.made()[0], case.settings, device, steps=STEPS_WITHOUT_CLOCK).complete()
        reserved = trace.peak_reserved
        peaks = [[step.peak_allocated, reserved] for step in trace.steps]
        said = {"message": trace.oom.message} if trace.oom else {}
        return {"peaks": peaks, "oom": trace.oom is not None, **said}
    peaks, seconds = [], []
    bring_level(device.device)
    device.release()
    device.start_step()
    # What PyTorch itself keeps from the cases before, as torch.func does.
    kept, kept_reserved = device.peak_allocated() or 0, device.peak_reserved() or 0
    generator = _begun(case, device)
    try:
        for _ in range(STEPS if device.computes else STEPS_WITHOUT_CLOCK):
            device.start_step()
            begun = time.perf_counter()
            next(generator)
            device.wait()
            seconds.append(time.perf_counter() - begun)
            peaks.append([_above(kept, device.peak_allocated()), _above(kept_reserved, device.peak_reserved())])
    except torch.OutOfMemoryError as error:
        traceback.clear_frames(error.__traceback__)
        return {"peaks": peaks, "oom": True, "message": str(error)}
    finally:
        generator.close()
        device.release()
    clock = {"seconds": statistics.median(seconds[2:])} if device.computes else {}
    return {"peaks": peaks, "oom": False, **clock}


def _begun(case: Case, device: Device) -> Generator[Any]:
    train, _ = case.made()
    return train(device.device, **case.settings)


def _above(kept: int, peak: int | None) -> int | None:
    return None if peak is None else peak - kept


def _watched(case: Case, device: Device) -> dict[str, Any]:
    """The X-ray: what the peak is made of; and what watching costs."""
    steps = WATCHED if device.computes else STEPS_WITHOUT_CLOCK
    trace = Run(case.made()[0], case.settings, device, steps=steps).complete()
    xrayed = [step.seconds for step in trace.steps[1:] if step.xrayed and step.seconds is not None]
    return {
        "xray_peak": trace.peak_allocated,
        "by_category": {str(category): count for category, count in trace.by_category.items()},
        "residual": trace.by_category.get(Category.WORKSPACE, 0),
        "peak_at": _place(trace),
        "flops": trace.flops,
        "measured_seconds": trace.seconds_per_step,
        "xray_seconds": statistics.median(xrayed) if xrayed else None,
    }


def _place(trace: Trace) -> str:
    return " ".join(part for part in (trace.peak_phase, trace.peak_module, trace.peak_op) if part)


def _write_events(case: Case, device: Device, file: Path) -> str:
    """Two steps from a cold start, as the allocator tells them, in a file beside the recording; its name."""
    device.release()
    generator = _begun(case, device)
    try:
        with EventRecorder() as recorder:
            for _ in range(2):
                next(generator)
            device.wait()
    finally:
        generator.close()
        device.release()
    stem = file.name.removesuffix(".gz").removesuffix(".json")
    name = f"{stem}_{case.name.replace(' ', '_').replace('=', '-')}{EVENTS}"
    trace = recorder.trace(f"two steps of {case.name} from a cold start, on {device.name}, torch {torch.__version__}")
    events = file.with_name(name)
    write_atomically(events, _packed(json.dumps(trace, separators=(",", ":")), events))
    return name


def _packed(text: str, file: Path) -> bytes:
    """Return the bytes to write to a file: compressed where its name says so, and always the same."""
    data = text.encode()
    return gzip.compress(data, mtime=0) if file.suffix == ".gz" else data


def _unpacked(file: Path) -> bytes:
    data = file.read_bytes()
    return gzip.decompress(data) if file.suffix == ".gz" else data


def _text(recording: dict[str, Any]) -> str:
    """JSON with a case a line, so that two recordings can be compared by eye."""
    head = {key: value for key, value in recording.items() if key != "cases"}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(case)}" for name, case in recording["cases"].items())
    return json.dumps(head, indent=1)[:-2] + f',\n "cases": {{\n{lines}\n }}\n}}\n'


def _summary(result: dict[str, Any]) -> str:
    if "error" in result:
        return result["error"]
    if result["oom"]:
        return "out of memory"
    peak = result["peaks"][-1][0] or result["xray_peak"]
    return f"{peak:,} bytes"
