"""The plan that ATen would run for a convolution, and the workspace that it takes.

The rules are those of ATen's ``Conv_v8.cpp``: the engines that cuDNN's heuristics propose, best first, then those of
its fallback list, without those whose numbers ATen does not allow (``filterEngineConfigs``). The first that makes a
plan, and for whose workspace there is memory, runs; with ``torch.backends.cudnn.benchmark`` all of them do, once.
"""

import json
from collections.abc import Iterator
from typing import Any

from memlab.vgpu.cards import CARDS
from memlab.vgpu.cudnn.backend import Cudnn, CudnnError, Descriptor
from memlab.vgpu.cudnn.convolution import DATA, FILTER, FORWARD, Convolution, Sizes

DTYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}  # cudnnDataType_t
CROSS_CORRELATION = 1
MODES = {"INSTANT": 0, "FALLBACK": 2}  # cudnnBackendHeurMode_t
TENSOR_CORE, DOWN_CONVERT_INPUTS, NONDETERMINISTIC = 0, 1, 4  # cudnnBackendNumericalNote_t
_NAMES = {  # of an operation, of the beginnings of its attributes, and of input, result and weight among these
    FORWARD: ("FORWARD", "FORWARD", ("X", "Y", "W")),
    DATA: ("BACKWARD_DATA", "BWD_DATA", ("DX", "DY", "W")),
    FILTER: ("BACKWARD_FILTER", "BWD_FILTER", ("X", "DY", "DW")),
}


def device(cudnn: Cudnn, capability: int) -> Descriptor:
    """A card of that compute capability, 75 for 7.5: on which of them it is, plans and workspaces do not depend.

    Raises:
        CudnnError: cuDNN or memlab does not know it.
    """
    card = next((card for card in CARDS.values() if card.sm == capability), None)
    if card is None:
        raise CudnnError(f"memlab knows no card of sm_{capability}")
    architecture = card.architecture
    facts = {
        "cudaDeviceId": 0,
        "deviceVer": 10 * capability,
        "driverVer": 13000,
        "totalGlobalMem": 16 << 30,
        "deviceName": f"sm_{capability}",
        "maxGridSize": [2147483647, 65535, 65535],
        "maxBlockSize": [1024, 1024, 64],
        "warpSize": 32,
        "regsPerBlock": 65536,
        "maxRegistersPerSM": 65536,
        "multiProcessorCount": card.processors,
        "maxSharedMemoryPerBlock": 48 << 10,
        "maxSharedMemoryPerBlockOptin": architecture.shared_optin << 10,
        "reservedSharedMemoryPerBlock": 1024 if capability >= 80 else 0,
        "maxCtasPerSM": architecture.blocks,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerSM": architecture.threads,
        "pciDeviceId": 0,
        "isTccDriver": 0,
        "supportCoopLaunch": 1,
        "smClockRateKHz": 1_500_000,
        "memClockRateKHz": 2_000_000,
        "l2CacheSize": card.speed.cache,
    }
    text = json.dumps(facts).encode() + b"\0"
    return cudnn.make("DEVICEPROP", DEVICEPROP_JSON_REPRESENTATION=("CHAR", *(bytes([byte]) for byte in text)))


def workspaces(cudnn: Cudnn, on: Descriptor, question: Convolution) -> Iterator[int]:
    """The workspaces, in bytes, of the plans that ATen would try, in its order.

    Raises:
        CudnnError: cuDNN does not take the question.
    """
    graph = _graph(cudnn, question)
    for mode in MODES:
        for config in _configs(cudnn, on, graph, mode):
            if _is_allowed(cudnn, config, question):
                try:
                    yield _workspace(cudnn, on, config)
                except CudnnError:
                    continue  # this engine does not run here


def _graph(cudnn: Cudnn, question: Convolution) -> Descriptor:
    compute = DTYPES["float64" if question.dtype == "float64" else "float32"]
    convolution = cudnn.make(
        "CONVOLUTION",
        CONVOLUTION_COMP_TYPE=("DATA_TYPE", compute),
        CONVOLUTION_CONV_MODE=("CONVOLUTION_MODE", CROSS_CORRELATION),
        CONVOLUTION_SPATIAL_DIMS=("INT64", len(question.stride)),
        CONVOLUTION_PRE_PADDINGS=("INT64", *question.padding),
        CONVOLUTION_POST_PADDINGS=("INT64", *question.padding),
        CONVOLUTION_DILATIONS=("INT64", *question.dilation),
        CONVOLUTION_FILTER_STRIDES=("INT64", *question.stride),
    )
    operation, prefix, names = _NAMES[question.way]
    attributes: dict[str, tuple[Any, ...]] = {
        name: ("BACKEND_DESCRIPTOR", _tensor(cudnn, letter, shape, question))
        for name, letter, shape in zip(names, "xyw", (question.x, question.y, question.w), strict=True)
    }
    attributes |= {"CONV_DESC": ("BACKEND_DESCRIPTOR", convolution), "ALPHA": ("FLOAT", 1.0), "BETA": ("FLOAT", 0.0)}
    named = {f"OPERATION_CONVOLUTION_{prefix}_{name}": value for name, value in attributes.items()}
    node = cudnn.make(f"OPERATION_CONVOLUTION_{operation}", **named)
    return cudnn.make("OPERATIONGRAPH", OPERATIONGRAPH_OPS=("BACKEND_DESCRIPTOR", node))


def _tensor(cudnn: Cudnn, letter: str, shape: Sizes, question: Convolution) -> Descriptor:
    return cudnn.make(
        "TENSOR",
        TENSOR_UNIQUE_ID=("INT64", ord(letter)),
        TENSOR_DATA_TYPE=("DATA_TYPE", DTYPES[question.dtype]),
        TENSOR_BYTE_ALIGNMENT=("INT64", question.alignment["xyw".index(letter)]),
        TENSOR_DIMENSIONS=("INT64", *shape),
        TENSOR_STRIDES=("INT64", *_strides(shape, question.channels_last)),
    )


def _strides(shape: Sizes, channels_last: bool) -> list[int]:
    order = [0, *range(2, len(shape)), 1] if channels_last else list(range(len(shape)))
    result, step = [0] * len(shape), 1
    for axis in reversed(order):
        result[axis] = step
        step *= shape[axis]
    return result


def _configs(cudnn: Cudnn, on: Descriptor, graph: Descriptor, mode: str) -> list[Descriptor]:
    heuristics = cudnn.make(
        "ENGINEHEUR",
        ENGINEHEUR_OPERATION_GRAPH=("BACKEND_DESCRIPTOR", graph),
        ENGINEHEUR_MODE=("HEUR_MODE", MODES[mode]),
        ENGINEHEUR_DEVICEPROP=("BACKEND_DESCRIPTOR", on),
    )
    empty = [cudnn.empty("ENGINECFG") for _ in range(heuristics.count("ENGINEHEUR_RESULTS"))]
    return heuristics.fill("ENGINEHEUR_RESULTS", empty)


def _is_allowed(cudnn: Cudnn, config: Descriptor, question: Convolution) -> bool:
    (engine,) = config.fill("ENGINECFG_ENGINE", [cudnn.empty("ENGINE")])
    notes = engine.numbers("ENGINE_NUMERICAL_NOTE", "NUMERICAL_NOTE", 32)
    if question.deterministic and NONDETERMINISTIC in notes:
        return False
    if question.dtype == "float32" and not question.tf32 and TENSOR_CORE in notes:
        return False
    return DOWN_CONVERT_INPUTS not in notes


def _workspace(cudnn: Cudnn, on: Descriptor, config: Descriptor) -> int:
    plan = cudnn.make(
        "EXECUTION_PLAN",
        EXECUTION_PLAN_DEVICEPROP=("BACKEND_DESCRIPTOR", on),
        EXECUTION_PLAN_ENGINE_CONFIG=("BACKEND_DESCRIPTOR", config),
    )
    return plan.numbers("EXECUTION_PLAN_WORKSPACE_SIZE", "INT64")[0]
