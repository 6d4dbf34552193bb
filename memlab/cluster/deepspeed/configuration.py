"""A DeepSpeed configuration, with DeepSpeed's own defaults filled in."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memlab.cluster.deepspeed.keys import remarks
from memlab.errors import BadValue
from memlab.protocol import check_world_size

BUCKET = 500_000_000  # numbers, DeepSpeed's default
CLIPPING = 1.0  # of the gradients' norm, DeepSpeed's default since 0.19


@dataclass(frozen=True)
class Configuration:
    """A DeepSpeed configuration for so many ranks.

    Attributes:
        world_size: how many ranks.
        train_batch_size: samples a step, on all ranks.
        micro_batch_size: samples at once on one rank.
        accumulation_steps: micro-batches a step.
        stage: of ZeRO, 0 to 3.
        offload_optimizer, offload_parameters: ``"none"``, ``"cpu"`` or ``"nvme"``.
        precision: ``"fp32"``, ``"fp16"`` or ``"bf16"``.
        gradient_clipping: the largest norm of the gradients, 0 for any.
        reduce_bucket_size: how many gradients are reduced at once, as numbers.
        activation_checkpointing: the section of that name, empty where there is none.
        remarks: sentences about keys that DeepSpeed ignores or does not know, and about what does nothing by itself.
    """

    world_size: int
    train_batch_size: int
    micro_batch_size: int
    accumulation_steps: int
    stage: int
    offload_optimizer: str
    offload_parameters: str
    precision: str
    gradient_clipping: float
    reduce_bucket_size: int
    activation_checkpointing: Mapping[str, Any]
    remarks: tuple[str, ...]


def read(source: str | Path | Mapping[str, Any], *, world_size: int) -> Configuration:
    """Read a configuration: a JSON file, or what would stand in one. DeepSpeed itself is not needed.

    Raises:
        BadValue: no readable file; a stage or a batch size that is none; batch sizes that do not fit together; "auto".
    """
    content = source if isinstance(source, Mapping) else _load(Path(source))
    zero = _section(content, "zero_optimization")
    batches = _batches(content, check_world_size(world_size))
    checkpointing = _section(content, "activation_checkpointing")
    stage = _number(zero, "stage", 0, most=3)
    offload_parameters = _offload(zero, "offload_param")
    idle = [_OFFLOADING.format(stage=stage)] if stage < 3 and offload_parameters != "none" else []
    idle += [_CHECKPOINTING] if checkpointing else []
    return Configuration(
        world_size,
        *batches,
        stage=stage,
        offload_optimizer=_offload(zero, "offload_optimizer"),
        offload_parameters=offload_parameters,
        precision=next((name for name in ("fp16", "bf16") if _section(content, name).get("enabled")), "fp32"),
        gradient_clipping=content.get("gradient_clipping", CLIPPING),
        reduce_bucket_size=_number(zero, "reduce_bucket_size", BUCKET),
        activation_checkpointing=checkpointing,
        remarks=(*remarks(content), *idle),
    )


# What does nothing by itself. DeepSpeed hands offload_param to stage 3's optimizer alone (runtime/engine.py).
_OFFLOADING = "'offload_param' is for stage 3 only: in stage {stage} the weights stay on the card."
_CHECKPOINTING = (
    "'activation_checkpointing' only says how deepspeed.checkpointing.checkpoint keeps what it is given: nothing is "
    "checkpointed unless the model calls it."
)


def _load(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once)
    except OSError as error:
        raise BadValue(f"{path} cannot be read ({error.strerror}): give the path of a DeepSpeed JSON file.") from None
    except ValueError as error:
        if isinstance(error, BadValue):
            raise
        raise BadValue(f"{path} is no JSON ({error}): mend it there.") from None
    if not isinstance(content, dict):
        raise BadValue(f"{path} holds {content!r}: a DeepSpeed configuration is one JSON object, in braces.")
    return content


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if twice := {name for name in names if names.count(name) > 1}:
        raise BadValue(f"{min(twice)!r} stands twice in the configuration: take one away.")
    return dict(pairs)


def _section(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = content.get(name, {})
    if not isinstance(section, Mapping):
        raise BadValue(f"{name}={section!r} is no section: give an object, in braces.")
    return section


def _number(content: Mapping[str, Any], name: str, default: int | None, *, least: int = 0, most: float = 1e18) -> Any:
    """A whole number, which JSON may have as 5e8."""
    value = content.get(name, default)
    if value == "auto":
        raise BadValue(f'{name}="auto" is filled in by Hugging Face\'s Trainer and not by DeepSpeed: give the number.')
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or value != int(value)
        or not least <= value <= most
    ):
        upto = f" to {most}" if most < 1e18 else " on"
        raise BadValue(f"{name}={value!r} is not possible: give a whole number from {least}{upto}.")
    return int(value)


def _offload(zero: Mapping[str, Any], name: str) -> str:
    device = _section(zero, name).get("device", "none") if zero.get(name) is not None else "none"
    if device not in ("none", "cpu", "nvme"):
        raise BadValue(f"{name} to {device!r} is not possible: give 'none', 'cpu' or 'nvme'.")
    return device


def _batches(content: Mapping[str, Any], ranks: int) -> tuple[int, int, int]:
    """The batch size of all ranks, of one pass on one rank, and how many passes: what is not given follows."""
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    whole, micro, passes = (_number(content, name, None, least=1) for name in names)
    if whole is None and micro is None:
        raise BadValue("The configuration has no batch size: give train_batch_size or train_micro_batch_size_per_gpu.")
    if whole is None:
        whole = micro * (passes or 1) * ranks
    elif micro is None:
        micro = whole // ranks // (passes or 1)
    passes = passes or whole // micro // ranks if micro else 0
    if whole != micro * passes * ranks:
        raise BadValue(
            f"train_batch_size={whole} is not train_micro_batch_size_per_gpu={micro} times "
            f"gradient_accumulation_steps={passes} times {ranks} ranks: change one of them."
        )
    return whole, micro, passes
