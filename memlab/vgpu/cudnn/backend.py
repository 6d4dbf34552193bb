"""cuDNN's backend API through ctypes: just enough to make execution plans without a device.

Since 9.8 cuDNN takes, where a handle would be, a device that is described in JSON, for compiling ahead of time. The
numbers below are those of NVIDIA's header ``cudnn_graph.h``; they are part of cuDNN's ABI.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

KINDS = {
    "CONVOLUTION": 1,
    "ENGINE": 2,
    "ENGINECFG": 3,
    "ENGINEHEUR": 4,
    "EXECUTION_PLAN": 5,
    "OPERATION_CONVOLUTION_FORWARD": 10,
    "OPERATION_CONVOLUTION_BACKWARD_FILTER": 11,
    "OPERATION_CONVOLUTION_BACKWARD_DATA": 12,
    "OPERATIONGRAPH": 15,
    "TENSOR": 17,
    "DEVICEPROP": 38,
}
TYPES: dict[str, tuple[int, Any]] = {
    "DATA_TYPE": (1, ctypes.c_int),
    "INT64": (3, ctypes.c_int64),
    "FLOAT": (4, ctypes.c_float),
    "CONVOLUTION_MODE": (7, ctypes.c_int),
    "HEUR_MODE": (8, ctypes.c_int),
    "NUMERICAL_NOTE": (11, ctypes.c_int),
    "BACKEND_DESCRIPTOR": (15, ctypes.c_void_p),
    "CHAR": (24, ctypes.c_char),
}
ATTRIBUTES = {
    "CONVOLUTION_COMP_TYPE": 100,
    "CONVOLUTION_CONV_MODE": 101,
    "CONVOLUTION_DILATIONS": 102,
    "CONVOLUTION_FILTER_STRIDES": 103,
    "CONVOLUTION_POST_PADDINGS": 104,
    "CONVOLUTION_PRE_PADDINGS": 105,
    "CONVOLUTION_SPATIAL_DIMS": 106,
    "ENGINEHEUR_MODE": 200,
    "ENGINEHEUR_OPERATION_GRAPH": 201,
    "ENGINEHEUR_RESULTS": 202,
    "ENGINEHEUR_DEVICEPROP": 204,
    "ENGINECFG_ENGINE": 300,
    "EXECUTION_PLAN_ENGINE_CONFIG": 401,
    "EXECUTION_PLAN_WORKSPACE_SIZE": 402,
    "EXECUTION_PLAN_DEVICEPROP": 407,
    "OPERATION_CONVOLUTION_FORWARD_ALPHA": 700,
    "OPERATION_CONVOLUTION_FORWARD_BETA": 701,
    "OPERATION_CONVOLUTION_FORWARD_CONV_DESC": 702,
    "OPERATION_CONVOLUTION_FORWARD_W": 703,
    "OPERATION_CONVOLUTION_FORWARD_X": 704,
    "OPERATION_CONVOLUTION_FORWARD_Y": 705,
    "OPERATION_CONVOLUTION_BWD_DATA_ALPHA": 706,
    "OPERATION_CONVOLUTION_BWD_DATA_BETA": 707,
    "OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC": 708,
    "OPERATION_CONVOLUTION_BWD_DATA_W": 709,
    "OPERATION_CONVOLUTION_BWD_DATA_DX": 710,
    "OPERATION_CONVOLUTION_BWD_DATA_DY": 711,
    "OPERATION_CONVOLUTION_BWD_FILTER_ALPHA": 712,
    "OPERATION_CONVOLUTION_BWD_FILTER_BETA": 713,
    "OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC": 714,
    "OPERATION_CONVOLUTION_BWD_FILTER_DW": 715,
    "OPERATION_CONVOLUTION_BWD_FILTER_X": 716,
    "OPERATION_CONVOLUTION_BWD_FILTER_DY": 717,
    "OPERATIONGRAPH_OPS": 801,
    "TENSOR_BYTE_ALIGNMENT": 900,
    "TENSOR_DATA_TYPE": 901,
    "TENSOR_DIMENSIONS": 902,
    "TENSOR_STRIDES": 903,
    "TENSOR_UNIQUE_ID": 906,
    "ENGINE_NUMERICAL_NOTE": 1303,
    "DEVICEPROP_JSON_REPRESENTATION": 2702,
}


class CudnnError(Exception):
    """cuDNN has refused."""


class Cudnn:
    """The library at that path.

    Raises:
        OSError: it cannot be loaded.
    """

    def __init__(self, path: str):
        self.library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        self.library.cudnnGetVersion.restype = ctypes.c_size_t
        self.library.cudnnBackendDestroyDescriptor.argtypes = [ctypes.c_void_p]

    @property
    def version(self) -> int:
        """As ``torch.backends.cudnn.version()``: 92000 for 9.20.0."""
        return int(self.library.cudnnGetVersion())

    def make(self, kind: str, **attributes: Any) -> "Descriptor":
        """A finished descriptor; each attribute is its type, then its values."""
        made = Descriptor(self.library, kind)
        for name, (type_, *values) in attributes.items():
            made.set(name, type_, values)
        made.finish()
        return made

    def empty(self, kind: str) -> "Descriptor":
        """A descriptor that cuDNN itself fills."""
        return Descriptor(self.library, kind)


class Descriptor:
    """A descriptor of the backend API; names are those of the header without ``CUDNN_ATTR_`` and the like.

    Raises:
        CudnnError: from every method, where cuDNN refuses.
    """

    def __init__(self, library: Any, kind: str):
        self._library = library
        self._handle = ctypes.c_void_p()
        self._kept: list[Any] = []  # what cuDNN may point to
        self._check(library.cudnnBackendCreateDescriptor(KINDS[kind], ctypes.byref(self._handle)))

    def __del__(self) -> None:
        self._library.cudnnBackendDestroyDescriptor(self._handle)

    def set(self, name: str, type_: str, values: Sequence[Any]) -> None:
        """Give an attribute its values."""
        number, c_type = TYPES[type_]
        raw = [value._handle.value if isinstance(value, Descriptor) else value for value in values]
        buffer = (c_type * len(raw))(*raw)
        self._kept.append((values, buffer))
        count = ctypes.c_int64(len(raw))
        self._check(
            self._library.cudnnBackendSetAttribute(self._handle, ATTRIBUTES[name], number, count, ctypes.byref(buffer))
        )

    def finish(self) -> None:
        """Let cuDNN check it."""
        self._check(self._library.cudnnBackendFinalize(self._handle))

    def numbers(self, name: str, type_: str, most: int = 1) -> list[int]:
        """An attribute's values."""
        buffer = (TYPES[type_][1] * most)()
        return list(buffer[: self._get(name, type_, most, buffer)])

    def count(self, name: str) -> int:
        """Return the number of descriptors that an attribute has."""
        return self._get(name, "BACKEND_DESCRIPTOR", 0, None)

    def fill(self, name: str, empty: list["Descriptor"]) -> list["Descriptor"]:
        """Let cuDNN fill as many of these as the attribute has."""
        buffer = (ctypes.c_void_p * len(empty))(*(one._handle.value for one in empty))
        filled = empty[: self._get(name, "BACKEND_DESCRIPTOR", len(empty), buffer)]
        for one in filled:
            one._kept.append(self)
        return filled

    def _get(self, name: str, type_: str, most: int, buffer: Any) -> int:
        count = ctypes.c_int64()
        place = None if buffer is None else ctypes.byref(buffer)
        self._check(
            self._library.cudnnBackendGetAttribute(
                self._handle, ATTRIBUTES[name], TYPES[type_][0], ctypes.c_int64(most), ctypes.byref(count), place
            )
        )
        return count.value

    def _check(self, status: int) -> None:
        if status:
            raise CudnnError(f"cuDNN's status {status}")
