"""``python -m tests.notebooks.deepspeed`` writes what DeepSpeed's own engine is predicted to take, for notebook 18.

Needs DeepSpeed: ``pip install -e ".[deepspeed]"``. The notebook shows the record where it is not installed.
"""

import importlib
import json
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from memlab import predict
from memlab.files import write_atomically
from memlab.nets import GPT2_LARGE
from memlab.shipped import shipped_folder

FILE = shipped_folder() / "recorded" / "deepspeed.json"
CARD, RANKS = "T4", 8
SMALL = {"bucket": 50_000_000}
TWO = {"stage": 2} | SMALL
THREE = {"stage": 3} | SMALL
FEW = {"zero_optimization": {"stage3_max_live_parameters": 50_000_000, "stage3_max_reuse_distance": 50_000_000}}
HALF = {"fp16": {"enabled": True}}
PARTITIONED = {"activation_checkpointing": {"partition_activations": True, "cpu_checkpointing": True}}
BASE = '"stage": 2 with "reduce_bucket_size": 5e7'
# What stands in the JSON, what it does, and the settings of ``ranks/zero.py``; a line with "and" is added to BASE.
KEYS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ('"stage": 0', "as DDP: everything on every rank", {"stage": 0} | SMALL),
    ('"stage": 1 with "reduce_bucket_size": 5e7', "cuts the optimizer state", {"stage": 1} | SMALL),
    ('"stage": 2', "cuts gradients, too; the default bucket is of 5e8 numbers", {"stage": 2}),
    (BASE, "cuts gradients, and sends fifty million at a time", TWO),
    (
        'and "contiguous_gradients": false',
        "no bucket of its own",
        TWO | {"zero_optimization": {"contiguous_gradients": False}},
    ),
    (
        'and "overlap_comm": true',
        "a second bucket, filled while one is sent",
        TWO | {"zero_optimization": {"overlap_comm": True}},
    ),
    ('and "offload_optimizer": {"device": "cpu"}', "state and step on the host", TWO | {"offload": True}),
    (
        'and "offload_param": {"device": "cpu"}',
        "nothing below stage 3",
        TWO | {"zero_optimization": {"offload_param": {"device": "cpu"}}},
    ),
    ('and "fp16": {"enabled": true}', "weights, gradients, activations in half", TWO | HALF),
    ('and "activation_checkpointing": {...}', "nothing, unless the model calls DeepSpeed's", TWO | PARTITIONED),
    (
        'and "gradient_checkpointing": true',
        "nothing: DeepSpeed has no such key",
        TWO | {"gradient_checkpointing": True},
    ),
    (
        '"stage": 3 with 5e7 and "stage3_param_persistence_threshold": 0',
        "cuts weights, too, but may keep 1e9 gathered",
        THREE,
    ),
    ('and "stage3_max_live_parameters", "stage3_max_reuse_distance": 5e7', "keeps few gathered", THREE | FEW),
)
STAGES = {
    "stage 0": {"stage": 0} | SMALL,
    "stage 1": {"stage": 1} | SMALL,
    "stage 2": TWO,
    "stage 2, optimizer on the host": TWO | {"offload": True},
    "stage 3": THREE,
    "stage 3, few gathered": THREE | FEW,
}


def peak(settings: dict[str, Any], *, ranks: int = RANKS) -> int | None:
    """Bytes on rank 0 with one sequence, None where memory runs out.

    Each in a process of its own, as a rank is: DeepSpeed keeps things in its modules, and a second engine of a process
    takes up to 1.5% less than a first.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(_peak, settings, ranks).result()


def _peak(settings: dict[str, Any], ranks: int) -> int | None:
    warnings.simplefilter("ignore")  # DeepSpeed calls functions of PyTorch that are deprecated
    zero = importlib.import_module("notebooks.ranks.zero")
    settings = {"sizes": GPT2_LARGE, "batch_per_rank": 1, "steps": 2} | settings
    trace = predict(zero.train, gpu=CARD, world_size=ranks, **settings)
    return None if trace.oom else trace.peak_allocated


def estimated() -> dict[str, tuple[int, int | None]]:
    """Return DeepSpeed's estimate of weights, gradients and state in half precision, and its engine's peak."""
    stage_2 = importlib.import_module("deepspeed.runtime.zero.stage_1_and_2").estimate_zero2_model_states_mem_needs
    weights = 774_030_080
    of = {offload: stage_2(weights, num_gpus_per_node=RANKS, cpu_offload=offload)[1] for offload in (False, True)}
    names = {
        "stage 2, fp16": (of[False], TWO | HALF),
        "stage 2, fp16, offloaded": (of[True], TWO | HALF | {"offload": True}),
    }
    return {name: (told, peak(settings)) for name, (told, settings) in names.items()}


def record() -> dict[str, Any]:
    """All that the notebook shows."""
    deepspeed = importlib.import_module("deepspeed")
    return {
        "deepspeed": deepspeed.__version__,
        "model": "GPT-2 large",
        "about": f"rank 0 of {RANKS} {CARD}s",
        "base": BASE,
        "keys": [(key, does, peak(settings)) for key, does, settings in KEYS],
        "stages": {name: {n: peak(settings, ranks=n) for n in (1, 2, 8, 32)} for name, settings in STAGES.items()},
        "estimated": estimated(),
    }


if __name__ == "__main__":
    write_atomically(FILE, json.dumps(record(), indent=1).encode() + b"\n")
