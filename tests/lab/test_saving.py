from dataclasses import replace

import pytest

from memlab import Saving
from memlab.errors import BadValue
from memlab.trace import Category, Event, OutOfMemory, Phase, Trace

MIB = 1024**2


def run(peak_mib: float, source: str = "measured", device: str = "CPU, 2 threads") -> Trace:
    event = Event(int(peak_mib * MIB), Category.ACTIVATION, Phase.FORWARD, "", "op")
    return Trace(
        source=source,
        device=device,
        torch_version="2.13.0",
        settings={},
        steps=(),
        peak_reserved=None,
        xray_step=0,
        start={},
        events=(event,),
        flops=1,
        oom=None,
    )


def saving(measured: tuple[float, float], predicted: tuple[float, float]) -> Saving:
    return Saving("x", tuple(map(run, measured)), tuple(run(peak, "predicted", "T4") for peak in predicted))


@pytest.mark.parametrize(
    ("measured", "predicted", "agrees"),
    [
        ((100, 50), (300, 200), True),
        ((100, 150), (300, 400), True),
        ((100, 99.5), (300, 302), True),
        ((100, 50), (300, 310), False),
        ((100, 50), (300, 299), False),
        ((100, 100), (300, 200), False),
    ],
)
def test_two_pairs_agree_when_they_point_the_same_way(measured, predicted, agrees):
    assert saving(measured, predicted).agrees is agrees


def test_a_saving_is_a_table_of_peaks():
    assert saving((100, 50), (2048, 2560))._repr_markdown_() == (
        "| x | without | with | |\n|---|--:|--:|--:|\n"
        "| measured, CPU, 2 threads | 100 MiB | 50.0 MiB | 50% saved |\n"
        "| predicted, T4 | 2.00 GiB | 2.50 GiB | 25% more |"
    )


def test_a_saving_reads_as_a_line():
    assert str(saving((100, 100), (8, 6))) == "x: nothing saved (measured, CPU, 2 threads), 25% saved (predicted, T4)"


def test_a_run_in_the_wrong_place_is_refused():
    with pytest.raises(BadValue, match="has no place in predicted: give two predicted runs"):
        Saving("x", (run(1), run(1)), (run(1), run(1)))


def test_a_run_out_of_memory_has_no_peak_to_compare():
    oom = OutOfMemory(asked=1, in_use=1, limit=1, phase=Phase.FORWARD, module="", op="")
    with pytest.raises(BadValue, match="that fit the device"):
        Saving("x", (replace(run(1), oom=oom), run(1)), (run(1, "predicted"), run(1, "predicted")))


def test_runs_of_two_devices_are_refused():
    with pytest.raises(BadValue, match="T4 and H100 cannot be compared"):
        Saving("x", (run(1), run(1)), (run(1, "predicted", "T4"), run(1, "predicted", "H100")))
