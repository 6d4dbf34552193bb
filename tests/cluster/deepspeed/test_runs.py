"""DeepSpeed itself on two ranks: the loss of one process, the bytes that were worked out, the names that it knows."""

import json
import os
from pathlib import Path

import pytest

deepspeed = pytest.importorskip("deepspeed")

from deepspeed.runtime.activation_checkpointing import config as checkpointing  # noqa: E402
from deepspeed.runtime.config import DeepSpeedConfig  # noqa: E402
from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config  # noqa: E402
from deepspeed.runtime.zero.config import DeepSpeedZeroConfig  # noqa: E402

from memlab import measure, predict  # noqa: E402
from memlab.categories import Category, Phase  # noqa: E402
from memlab.cluster import measure as measure_ranks  # noqa: E402
from memlab.cluster.deepspeed import keys, read, residents  # noqa: E402
from memlab.nets import GPT  # noqa: E402
from notebooks.ranks import zero  # noqa: E402
from tests.cluster import whole  # noqa: E402
from tests.notebooks import deepspeed as record  # noqa: E402

# DeepSpeed calls functions of PyTorch that are deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

COUNTERS = 100  # bytes
OTHERS = (Category.INPUT, Category.ACTIVATION, Category.TEMPORARY)


def resident(trace):
    """All the bytes that are there when the optimizer begins, but for data, the loss and what is gone soon."""
    optimizer = next(first for phase, first, _ in trace.phases if phase is Phase.OPTIMIZER)
    return sum(values[optimizer] for category, values in trace.timeline.items() if category not in OTHERS)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_each_stage_trains_as_one_process_does_and_leaves_the_bytes_that_were_worked_out(stage):
    config = zero.configuration(8, stage, bucket=10_000)
    # DeepSpeed compiles C++ when it first runs on a machine.
    traces = measure_ranks(zero.train, timeout=600, stage=stage, bucket=10_000)
    one = measure(whole.train, device="cpu")
    both = [sum(losses) / 2 for losses in zip(*(trace.losses for trace in traces), strict=True)]
    assert both == pytest.approx(one.losses, abs=1e-5)
    numbers = sum(parameter.numel() for parameter in GPT(depth=4, width=32, heads=4, context=32).parameters())
    expected = residents(numbers, read(config, world_size=2))
    known = expected.parameters + expected.gradients + expected.optimizer_state
    for trace in traces:
        assert 0 <= resident(trace) - known < COUNTERS


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_each_stage_is_predicted_to_take_what_two_ranks_take(stage):
    settings = {"stage": stage, "bucket": 200_000, "sizes": zero.SMALL | {"width": 128, "context": 64}}
    predicted = predict(zero.train, world_size=2, **settings)
    assert predicted.by_category == predict(zero.train, world_size=2, **settings).by_category  # nothing is left over
    assert "DS_ACCELERATOR" not in os.environ
    workspace = predicted.timeline[Category.WORKSPACE]  # which the CPU's libraries do not take from PyTorch
    taken = max(map(int.__sub__, predicted.allocated, workspace))
    for trace in measure_ranks(zero.train, timeout=600, **settings):
        assert taken == pytest.approx(trace.peak_allocated, rel=0.005)


def test_the_default_bucket_costs_more_than_stage_2_saves():
    sizes = {"depth": 2, "width": 768, "heads": 12, "context": 64}
    plain, cut, small = (
        predict(zero.train, world_size=2, sizes=sizes, stage=stage, bucket=bucket)
        for stage, bucket in ((0, zero.BUCKET), (2, zero.BUCKET), (2, 1_000_000))
    )
    assert cut.peak_allocated > plain.peak_allocated > small.peak_allocated


class Asked(dict):
    """A configuration that notes the names which it is asked for."""

    def __init__(self, content):
        super().__init__(content)
        self.names = set()

    def get(self, name, default=None):
        self.names.add(name)
        return super().get(name, default)

    def __contains__(self, name):
        self.names.add(name)
        return super().__contains__(name)

    def __getitem__(self, name):
        self.names.add(name)
        return super().__getitem__(name)

    def keys(self):
        return self

    def __copy__(self):
        return self


def test_the_names_are_those_that_deepspeed_asks_for():
    asked = Asked({"train_batch_size": 8})
    DeepSpeedConfig(asked)
    assert asked.names | {"sequence_parallel_size"} == keys.TOP | keys.REMOVED
    fields = {name: field.alias or name for name, field in DeepSpeedZeroConfig.model_fields.items()}
    assert keys.SECTIONS["zero_optimization"] == set(fields.values())
    assert keys.SECTIONS["fp16"] == set(DeepSpeedFP16Config.model_fields)
    assert keys.SECTIONS["bf16"] == set(DeepSpeedBF16Config.model_fields)
    source = Path(checkpointing.__file__).read_text()
    assert all(f"'{name}'" in source for name in keys.SECTIONS["activation_checkpointing"])


def test_the_record_of_notebook_18_is_what_is_predicted():
    kept = json.loads(record.FILE.read_text(encoding="utf-8"))
    assert [(key, does) for key, does, _ in kept["keys"]] == [(key, does) for key, does, _ in record.KEYS]
    # Not to the byte: what DeepSpeed holds in cycles is freed when Python collects them, earlier or later.
    assert kept["stages"]["stage 2"]["2"] == pytest.approx(record.peak(record.TWO, ranks=2), rel=1e-3)
    if kept["deepspeed"] == deepspeed.__version__:
        assert {key: peak for key, _, peak in kept["keys"]}[record.BASE] == pytest.approx(
            record.peak(record.TWO), rel=1e-3
        )
