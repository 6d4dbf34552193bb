"""A few traces, made by hand: what is said of them depends on nothing that ran."""

from dataclasses import replace

from memlab.trace import Category, Event, OutOfMemory, Phase, Step, Storage, Trace
from memlab.units import GIB, MIB

FORWARD = [
    Event(4 * MIB, Category.INPUT, Phase.OTHER, "", "aten._to_copy"),
    Event(48 * MIB, Category.ACTIVATION, Phase.FORWARD, "blocks.0.mlp", "aten.mm"),
    Event(48 * MIB, Category.ACTIVATION, Phase.FORWARD, "blocks.1.mlp", "aten.mm"),
]
BACKWARD = [
    Event(24 * MIB, Category.TEMPORARY, Phase.BACKWARD, "blocks.1.mlp", "aten.mm"),
    Event(16 * MIB, Category.GRADIENT, Phase.BACKWARD, "blocks.1.mlp", "aten.mm"),
    Event(-48 * MIB, Category.ACTIVATION, Phase.BACKWARD, "blocks.1.mlp", ""),
    Event(-24 * MIB, Category.TEMPORARY, Phase.BACKWARD, "blocks.1.mlp", ""),
    Event(16 * MIB, Category.GRADIENT, Phase.BACKWARD, "blocks.0.mlp", "aten.mm"),
    Event(-48 * MIB, Category.ACTIVATION, Phase.BACKWARD, "blocks.0.mlp", ""),
]
OPTIMIZER = [
    Event(-32 * MIB, Category.GRADIENT, Phase.OPTIMIZER, "", ""),
    Event(-4 * MIB, Category.INPUT, Phase.OTHER, "", ""),
]
STEPS = (
    Step(2.5, 0.25, 204 * MIB, True),
    Step(1.25, 0.125, 236 * MIB, True),
    Step(0.625, 0.0625, None, False),
)

MEASURED = Trace(
    source="measured",
    device="CPU, 2 threads",
    torch_version="2.13.0",
    settings={"batch_size": 8, "precision": "bf16"},
    steps=STEPS,
    peak_reserved=None,
    xray_step=1,
    start={Category.PARAMETER: 32 * MIB, Category.OPTIMIZER_STATE: 64 * MIB},
    events=(*FORWARD, *BACKWARD, *OPTIMIZER),
    flops=3 * 10**9,
)
SMALLER = replace(
    MEASURED,
    settings={"batch_size": 4, "precision": "bf16"},
    events=(FORWARD[0], FORWARD[1], BACKWARD[4], BACKWARD[5]),
    flops=2 * 10**9,
)
STORAGES = (
    Storage("blocks.0.mlp.weight", (2048, 4096), "float32", Category.PARAMETER, 32 * MIB),
    Storage("blocks.0.mlp.weight", (2, 2048, 4096), "float32", Category.OPTIMIZER_STATE, 64 * MIB),
    Storage("", (8, 1024, 64), "int64", Category.INPUT, 0),
    Storage("", (8, 1024, 1536), "float32", Category.ACTIVATION, 0, "logits"),
)
NAMED = replace(
    MEASURED,
    events=(
        FORWARD[0]._replace(storage=2, line=5, seconds=0.001),
        FORWARD[1]._replace(storage=3, line=6, seconds=0.02),
        BACKWARD[-1]._replace(storage=3, line=7, seconds=0.05),
        OPTIMIZER[1]._replace(storage=2, line=5, seconds=0.0625),
    ),
    storages=STORAGES,
)
ON_A_CARD = replace(MEASURED, device="NVIDIA L4", peak_reserved=258 * MIB)
PREDICTED = replace(
    ON_A_CARD,
    source="predicted",
    device="T4",
    steps=(Step(None, None, 236 * MIB, True),),
    least_seconds=0.0412,
    likely_seconds=0.0618,
)
WITH_NOTES = replace(PREDICTED, notes=("Line 7 asked for a number from the card, which is guessed as 0.",))
EMPTY = replace(MEASURED, start={}, events=())
NO_MODULE = replace(MEASURED, events=(Event(800 * MIB, Category.WORKSPACE, Phase.OTHER, "", "aten.mm"),))

PLACED = OutOfMemory(48 * MIB, 100 * MIB, 128 * MIB, Phase.FORWARD, "blocks.0.mlp", "aten.mm")
ON_THE_CARD = OutOfMemory(2 * GIB, 13 * GIB, None, Phase.BACKWARD, "", "aten.mm", "CUDA out of memory. Tried it.")
UNKNOWN = OutOfMemory(None, 0, None, Phase.OTHER, "", "")
FAILED = replace(MEASURED, events=tuple(FORWARD[:2]), oom=PLACED)
PREDICTED_TO_FAIL = replace(PREDICTED, events=tuple(FORWARD), oom=ON_THE_CARD, least_seconds=None, likely_seconds=None)
