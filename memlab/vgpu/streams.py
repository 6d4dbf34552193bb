"""Streams and events of the card. What is given to a stream is accounted for at once, in the order of the loop."""

from typing import Any

from memlab.vgpu.current_prediction import current
from memlab.vgpu.names import CARD

MILLISECONDS = 1.0  # between any two events: no time is predicted, and code divides by it


class Stream:
    """A stream of the card.

    The allocator keeps the blocks of each stream apart. A new one is the next of those that PyTorch hands out again
    and again (``getStreamFromPool`` in ``c10/cuda/CUDAStream.cpp``).
    """

    def __init__(self, *args: Any, stream_id: int | None = None, **kwargs: Any):
        self.device = CARD
        self.device_index, self.device_type = CARD.index, 1  # of c10::DeviceType: CUDA
        self.stream_id = self.cuda_stream = current().next_stream() if stream_id is None else stream_id
        self._outer: list[int] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)

    def wait_stream(self, stream: Any) -> None:
        """Nothing to wait for."""

    wait_event = wait_stream

    def record_event(self, event: Any = None) -> Any:
        """A moment on it."""
        return event or Event()

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """Everything is done."""
        return True

    def is_capturing(self) -> bool:
        """Return True while a CUDA graph is made of what it is given."""
        return current().capturing

    def __enter__(self) -> "Stream":
        self._outer.append(_change_stream(self.cuda_stream))
        return self

    def __exit__(self, *exception: object) -> None:
        _change_stream(self._outer.pop())


def _change_stream(stream: int) -> int:
    """Work goes to this stream from now on; the one before."""
    return current().memory.streams.change(stream)


def current_stream(device: Any = None) -> Stream:
    """The one that work goes to now."""
    return Stream(stream_id=current().memory.streams.current())


def default_stream(device: Any = None) -> Stream:
    """The one that work goes to at first."""
    return Stream(stream_id=0)


def set_stream(stream: Stream) -> None:
    """Work goes to this one from now on."""
    _change_stream(stream.cuda_stream)


class Event:
    """A moment on the card."""

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def record(self, stream: Any = None) -> None:
        """Nothing to write down."""

    wait = record

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """It is over."""
        return True

    def elapsed_time(self, end: Any) -> float:
        """Milliseconds: always the same."""
        return MILLISECONDS


class OnStream:
    """The replacement for ``torch.cuda.stream``: work within it goes to a stream, or for None to the one before."""

    def __init__(self, stream: Stream | None):
        self._stream = stream or current_stream()

    def __enter__(self) -> "OnStream":
        self._stream.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stream.__exit__(*exception)
