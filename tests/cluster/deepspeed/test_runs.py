"""DeepSpeed itself on two ranks: the loss of one process, the bytes that were worked out, the names that it knows."""

from pathlib import Path

import pytest

deepspeed = pytest.importorskip("deepspeed")

from deepspeed.runtime.activation_checkpointing import config as checkpointing  # noqa: E402
from deepspeed.runtime.config import DeepSpeedConfig  # noqa: E402
from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config  # noqa: E402
from deepspeed.runtime.zero.config import DeepSpeedZeroConfig  # noqa: E402

from memlab import measure  # noqa: E402
from memlab.categories import Category, Phase  # noqa: E402
from memlab.cluster import measure as measure_ranks  # noqa: E402
from memlab.cluster.deepspeed import keys, read, residents  # noqa: E402
from memlab.nets import GPT  # noqa: E402
from notebooks.ranks import zero  # noqa: E402
from tests.cluster import whole  # noqa: E402

COUNTERS = 100  # bytes
OTHERS = (Category.INPUT, Category.ACTIVATION, Category.TEMPORARY)


def resident(trace):
    """All the bytes that are there when the optimizer begins, but for data, the loss and what is gone soon."""
    optimizer = next(first for phase, first, _ in trace.phases if phase is Phase.OPTIMIZER)
    return sum(values[optimizer] for category, values in trace.timeline.items() if category not in OTHERS)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_each_stage_trains_as_one_process_does_and_leaves_the_bytes_that_were_worked_out(stage):
    config = zero.configuration(8, stage)
    # DeepSpeed compiles C++ when it first runs on a machine.
    traces = measure_ranks(zero.train, timeout=600, stage=stage)
    one = measure(whole.train, device="cpu")
    both = [sum(losses) / 2 for losses in zip(*(trace.losses for trace in traces), strict=True)]
    assert both == pytest.approx(one.losses, abs=1e-5)
    numbers = sum(parameter.numel() for parameter in GPT(depth=4, width=32, heads=4, context=32).parameters())
    expected = residents(numbers, read(config, world_size=2))
    known = expected.parameters + expected.gradients + expected.optimizer_state
    for trace in traces:
        assert 0 <= resident(trace) - known < COUNTERS


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
