"""The words, and what is drawn, as they were when somebody last read them. ``make golden`` writes them again."""

import argparse
import json
from dataclasses import replace

import pytest
import torch

from memlab import Challenge, Guess, Saving, Trace, measure, sweep
from memlab.cli.functions import load_function, read_settings
from memlab.cli.report import report, title
from memlab.devices import open_device
from memlab.errors import BadValue, MemlabError
from memlab.lab import Claim, Lab, verdict
from memlab.lab.choices import make_choice
from memlab.lab.progress import progress
from memlab.lab.screen import View
from memlab.lab.steady import MOST_STEPS, Footprint, unsteadiness
from memlab.lab.words import failure_sentence, prediction_summary, recorded_summary, run_name, summary
from memlab.plots import bars, curve
from memlab.protocol import check_settings
from memlab.units import GIB, MIB, parse_bytes
from memlab.vgpu import find_card
from tests.golden import traces
from tests.golden.traces import FAILED, MEASURED, NAMED, ON_A_CARD, PREDICTED, PREDICTED_TO_FAIL, SMALLER, WITH_NOTES

TRACES = {name: value for name, value in vars(traces).items() if isinstance(value, Trace)}


NAMES = ("batch_size", "precision")
OTHER_BATCH = replace(PREDICTED, settings=PREDICTED.settings | {"batch_size": 16}, flops=2 * PREDICTED.flops)


def listed(lines):
    """``{"a name": "a sentence"}`` as text, two lines for each and an empty one."""
    return "\n".join(f"{name}\n    {sentence}\n" for name, sentence in lines.items())


def test_what_a_trace_says(golden):
    golden("trace_sentences.txt", listed({name: trace.sentence for name, trace in TRACES.items()}))


def test_what_running_out_of_memory_says(golden):
    failures = {name: getattr(traces, name) for name in ("PLACED", "ON_THE_CARD", "UNKNOWN")}
    golden("oom_sentences.txt", listed({name: oom.sentence for name, oom in failures.items()}))


def test_what_the_panel_says(golden):
    growing = [Footprint(12 * MIB * step, 20 * MIB * step) for step in range(MOST_STEPS)]
    in_turn = [Footprint(step % 2, 9) for step in range(MOST_STEPS)]
    words = {
        "a first run": summary(MEASURED, [], None),
        "a run after another": summary(MEASURED, [SMALLER], None),
        "a run of the same settings": summary(MEASURED, [MEASURED], None),
        "a run that was predicted": summary(ON_A_CARD, [], PREDICTED),
        "a run with notes": summary(WITH_NOTES, [], None),
        "a run that failed": summary(FAILED, [MEASURED], None),
        "a prediction": prediction_summary(PREDICTED),
        "a prediction after another": prediction_summary(PREDICTED, before=OTHER_BATCH, names=NAMES),
        "a prediction over the budget": prediction_summary(PREDICTED, budget=100 * MIB),
        "a prediction with notes": prediction_summary(WITH_NOTES),
        "a prediction that grows": prediction_summary(PREDICTED, warning=unsteadiness(growing)),
        "a prediction in turn": prediction_summary(PREDICTED, warning=unsteadiness(in_turn)),
        "a prediction of a failure": prediction_summary(PREDICTED_TO_FAIL),
        "a recorded run": recorded_summary(ON_A_CARD),
        "its name in the menu": run_name(ON_A_CARD),
        "an error in the loop": failure_sentence(ValueError("mine"), train),
        "what memlab refuses": failure_sentence(BadValue("0 is no batch size: give 1 or more."), train),
        "an error that is a sentence": failure_sentence(ValueError("It is mine: mend it."), train),
    }
    golden("panel_words.txt", listed(words))


def test_what_the_command_line_says(golden):
    named = {"MEASURED": MEASURED, "PREDICTED": PREDICTED, "PREDICTED_TO_FAIL": PREDICTED_TO_FAIL, "NOTES": WITH_NOTES}
    texts = ("\n".join(report(title("loop.py:train", trace), trace, "loop.py")) for trace in named.values())
    golden("report.txt", "\n\n".join(texts) + "\n")


def readable(value, indent=""):
    """JSON with a line for each name, and for each list of numbers or texts, so that a change can be read."""
    if isinstance(value, dict) and value:
        inner = indent + " "
        parts = [f"{inner}{json.dumps(name)}: {readable(part, inner)}" for name, part in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(part, dict) for part in value):
        inner = indent + " "
        return "[\n" + ",\n".join(inner + readable(part, inner) for part in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("shown.json", View(NAMED, NAMES, outline=PREDICTED, budget=300 * MIB).to_plain()),
        ("shown_failed.json", View(FAILED, NAMES, budget=128 * MIB).to_plain()),
        ("shown_predicted.json", View(PREDICTED, NAMES, "GPT-2 small", budget=220 * MIB, room=15 * GIB).to_plain()),
        ("shown_full.json", View(PREDICTED_TO_FAIL, NAMES, room=250 * MIB).to_plain(workspace=False)),
        (
            "run.json",
            progress(
                (*MEASURED.steps, replace(MEASURED.steps[-1], loss=float("nan"))),
                5,
                name="batch 8 · precision bf16",
                earlier=[SMALLER.steps[:2]],
                ranks=[MEASURED.steps[:1], MEASURED.steps],
                sample="reads:   def\nguesses: dex",
                going=True,
            ),
        ),
    ],
)
def test_what_the_panel_draws(golden, name, shown):
    text = readable(shown)
    assert json.loads(text) == shown
    golden(name, text + "\n")


def train(device, *, batch_size=8):
    yield 1.0


def no_device(*, batch_size):
    yield 1.0


def needs(device, *, width):
    yield 1.0


def with_steps(device, *, steps=3):
    yield 1.0


def silent(device):
    if device is None:
        yield


def words(device):
    yield "a loss"


def many(device):
    yield torch.ones(2, 3)


REFUSED = {
    "measure(3)": lambda: measure(3),
    "measure(no_device)": lambda: measure(no_device),
    "measure(with_steps)": lambda: measure(with_steps),
    "measure(a function that returns)": lambda: measure(lambda device: 3),
    "measure(silent)": lambda: measure(silent, device="cpu"),
    "measure(words)": lambda: measure(words, device="cpu"),
    "measure(many)": lambda: measure(many, device="cpu"),
    "measure(needs)": lambda: measure(needs),
    "measure(steps=0)": lambda: measure(train, steps=0),
    "measure(xray='no')": lambda: measure(train, xray="no"),
    "measure(batchsize=4)": lambda: measure(train, batchsize=4),
    "measure(budget='lots')": lambda: measure(train, budget="lots"),
    "sweep(x=[1])": lambda: sweep(train, x=[1]),
    "check_settings(x=1)": lambda: check_settings(train, {"x": 1}),
    "parse_bytes(-1)": lambda: parse_bytes(-1),
    "parse_bytes('20')": lambda: parse_bytes("20"),
    "parse_bytes('1,5 GiB')": lambda: parse_bytes("1,5 GiB"),
    "open_device('tpu')": lambda: open_device("tpu"),
    "open_device('meta')": lambda: open_device("meta"),
    "find_card('K80')": lambda: find_card("K80"),
    "Trace.from_json('{}')": lambda: Trace.from_json("{}"),
    "Trace.from_json(another format)": lambda: Trace.from_json('{"memlab_trace": 0}'),
    "bars({})": lambda: bars({}),
    "curve(depth)": lambda: curve([MEASURED], "depth"),
    "Guess('much')": lambda: Guess("How much?").answer("much"),
    "Claim('maybe')": lambda: Claim("It helps", "maybe", "no"),
    "verdict([])": lambda: verdict([]),
    "Saving(wrong source)": lambda: Saving("it", (PREDICTED, PREDICTED), (PREDICTED, PREDICTED)),
    "Saving(two devices)": lambda: Saving("it", (MEASURED, ON_A_CARD), (PREDICTED, PREDICTED)),
    "Challenge(train)": lambda: Challenge(train, budget="1 MiB", slowdown=1, device="cpu"),
    "Lab(depth=(1, 2))": lambda: Lab(train, device="cpu", depth=(1, 2)),
    "Lab(batch_size=(9, 64))": lambda: Lab(train, device="cpu", batch_size=(9, 64)),
    "Lab(batch_size='any')": lambda: Lab(train, device="cpu", batch_size="any"),
    "Lab().run(batch_size=65)": lambda: Lab(train, device="cpu", batch_size=(1, 64)).run(batch_size=65),
    "a menu": lambda: make_choice("precision", ["fp32", "bf16"]).check("fp8"),
    "a switch": lambda: make_choice("compiled", bool).check(1),
    "memlab measure loop.py": lambda: load_function("loop.py"),
    "memlab measure loop.txt:train": lambda: load_function("loop.txt:train"),
    "memlab measure loop.ipynb:train": lambda: load_function("loop.ipynb:train"),
    "memlab measure loop.py:train x": lambda: read_settings(["x"]),
}


def refusal(call):
    """The error that a call raises, as text."""
    with pytest.raises((MemlabError, argparse.ArgumentError)) as caught:
        call()
    return f"{type(caught.value).__name__}: {caught.value}"


def test_what_is_refused(golden):
    golden("refusals.txt", listed({name: refusal(call) for name, call in REFUSED.items()}))


def test_every_refusal_says_what_to_do_in_one_sentence():
    for call in REFUSED.values():
        text = refusal(call)
        assert text.endswith(".")
        assert "\n" not in text


def test_a_changed_text_is_seen(golden, request, monkeypatch):
    monkeypatch.setattr(request.config.option, "golden", False)
    with pytest.raises(AssertionError):
        golden("oom_sentences.txt", "something else")
