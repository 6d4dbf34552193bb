"""The figures: they draw, carry their sentence, and touch nothing global."""

import io
import subprocess
import sys

import pytest
from PIL import Image

from memlab import plots
from memlab.errors import BadValue
from memlab.trace import Category, Event, OutOfMemory, Phase, Trace

PNG = b"\x89PNG"


def trace(peak, oom=None, **settings):
    events = (
        Event(peak, Category.ACTIVATION, Phase.FORWARD, "blocks.0", "aten.mm"),
        Event(-peak, Category.ACTIVATION, Phase.BACKWARD, "blocks.0", ""),
    )
    return Trace("measured", "CPU", "2.13.0", settings, (), None, 0, {Category.PARAMETER: 1000}, events, 0, oom)


EMPTY = Trace("measured", "CPU", "2.13.0", {}, (), None, 0, {}, (), 0)
FAILED = trace(500, OutOfMemory(10**6, 1500, 2000, Phase.FORWARD, "blocks.0", "aten.mm"), width=2)


@pytest.mark.parametrize(
    ("picture", "sentence"),
    [
        (plots.timeline(trace(3000)), "peak 3.91 KiB in forward at blocks.0: 75% activations"),
        (plots.timeline(trace(3000), budget="8 KiB"), "peak 3.91 KiB in forward at blocks.0: 75% activations"),
        (plots.timeline(FAILED), FAILED.sentence),
        (plots.timeline(trace(0)), "peak 0.98 KiB in other: 100% parameters"),
        (
            plots.bars({"off": trace(3000), "on": trace(1000)}, budget=2000),
            "least 1.95 KiB with on, most 3.91 KiB with off: 2.00 times",
        ),
        (plots.timeline(EMPTY), "peak 0 B in other: nothing allocated"),
        (plots.bars({"one": EMPTY}), "one: peak 0 B in other: nothing allocated"),
        (plots.bars({"one": FAILED}), f"one: {FAILED.sentence}"),
        (plots.bars({"one": trace(1)}, title="Mine"), "Mine"),
        (
            plots.curve([trace(3000, width=2), trace(1000, width=1)], "width"),
            "least 1.95 KiB with width=1, most 3.91 KiB with width=2: 2.00 times",
        ),
    ],
)
def test_a_figure_is_a_png_with_its_sentence_as_text(picture, sentence):
    bundle = picture._repr_mimebundle_()
    assert bundle["text/plain"] == sentence
    assert picture.png().startswith(PNG)
    assert Image.open(io.BytesIO(picture.png())).text["Description"] == sentence  # for whoever finds the file alone


def test_the_stack_adds_up_to_the_peak():
    axes = plots.timeline(trace(3000)).axes[0]
    tops = [collection.get_paths()[0].vertices[:, 1].max() for collection in axes.collections]
    assert max(tops) == 4000


def test_a_cpu_figure_says_what_its_bytes_are():
    texts = [text.get_text() for text in plots.timeline(trace(1)).axes[0].texts]
    assert "measured on CPU, bytes of live tensor storages" in texts


def test_the_axis_is_marked_in_powers_of_two():
    labels = [label.get_text() for label in plots.timeline(trace(3 * 2**20)).axes[0].get_yticklabels()]
    assert labels == ["0", "1 MiB", "2 MiB", "3 MiB"]


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: plots.bars({}), "nothing to draw"),
        (lambda: plots.curve([], "width"), "nothing to draw"),
        (lambda: plots.curve([trace(1, width=1)], "depth"), "'depth' is no setting of these runs: .* width"),
        (lambda: plots.timeline(trace(1), budget="lots"), "'lots' is not a number of bytes"),
    ],
)
def test_what_cannot_be_drawn_is_told(draw, words):
    with pytest.raises(BadValue, match=words):
        draw()


def test_drawing_never_loads_pyplot():
    code = "import sys; from memlab import plots; print('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
