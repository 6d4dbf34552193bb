"""The price of saving memory: the time of a step, and the samples a second that this makes."""

from dataclasses import dataclass

from memlab.trace import Trace
from memlab.units import format_seconds


@dataclass(frozen=True)
class Cost:
    """The time of a step, and the samples that it processes.

    Attributes:
        seconds: a step, measured or, of a prediction, probably; None where that is not known.
        least: seconds that the card takes at the very least, by its roofline; None where it was measured.
        samples: in a step; None for a loop without a batch size.
    """

    seconds: float | None
    least: float | None
    samples: int | None

    @property
    def rate(self) -> float | None:
        """Samples a second."""
        return self.samples / self.seconds if self.samples and self.seconds else None

    @property
    def highest_rate(self) -> float | None:
        """Samples a second at the very most."""
        return self.samples / self.least if self.samples and self.least else None


def cost(trace: Trace) -> Cost:
    """Return the time and the samples of a run's step."""
    if trace.source == "measured":
        return Cost(trace.seconds_per_step, None, _samples(trace))
    return Cost(trace.likely_seconds, trace.least_seconds, _samples(trace))


def _samples(trace: Trace) -> int | None:
    settings = trace.settings
    samples = settings.get("batch_size", settings.get("batch_per_rank", 0) * trace.world_size)
    return samples if isinstance(samples, int) and samples > 0 else None


def facts(trace: Trace) -> str:
    """The peak, the time and the rate of a run in one line; a bound is called one."""
    paid = cost(trace)
    words = [] if trace.oom else [f"{trace.peak_text} peak"]
    if paid.least and paid.seconds:
        words.append(f"at least {format_seconds(paid.least)} a step, probably {format_seconds(paid.seconds)}")
    elif paid.seconds:
        words.append(f"{format_seconds(paid.seconds)} a step")
    if paid.highest_rate and paid.rate:
        words.append(f"at most {rate_text(paid.highest_rate)} samples/s, probably {rate_text(paid.rate)}")
    elif paid.rate:
        words.append(f"{rate_text(paid.rate)} samples/s")
    return " · ".join(words)


def rate_text(rate: float) -> str:
    """A rate with three significant digits: ``0.42``, ``22.5``, ``12,300``."""
    return f"{float(f'{rate:.3g}'):,.0f}" if rate >= 100 else f"{rate:.3g}"
