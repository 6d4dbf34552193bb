"""A shared library whose functions are Python's: an ELF file for x86-64 Linux, written without a compiler.

cuDNN opens other libraries by name while it makes a plan, and leaves out engines whose library does not start. The ELF
format is that of the System V ABI (gabi and the x86-64 supplement); the machine code is one jump a function, through a
table in the library's data that Python fills in.
"""

import ctypes
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

PAGE = 4096
_HEADER, _PROGRAM_HEADER, _SYMBOL = 64, 56, 24  # bytes of each
_JUMP = 8  # bytes of code a function
_ARGUMENTS = 10  # integers and pointers that a function may take; reading more than were given is harmless
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_size_t] * _ARGUMENTS)
_TABLE = "memlab_table"


def load(soname: str, functions: Mapping[str, Callable[..., int]]) -> list[Any]:
    """Make such a library in memory and load it, so that whoever opens ``soname`` finds this one.

    Each function gets ten integers and returns one. What is returned must be kept as long as they may be called.

    Raises:
        OSError: it cannot be loaded.
    """
    descriptor = os.memfd_create(soname)  # stays open: the loader knows a library by its path
    os.write(descriptor, shared_object(soname, list(functions)))
    library = ctypes.CDLL(f"/proc/self/fd/{descriptor}", mode=ctypes.RTLD_GLOBAL)
    table = (ctypes.c_void_p * len(functions)).in_dll(library, _TABLE)
    callbacks = [_FUNCTION(function) for function in functions.values()]
    for index, callback in enumerate(callbacks):
        table[index] = ctypes.cast(callback, ctypes.c_void_p).value
    return [library, *callbacks]


def shared_object(soname: str, names: Sequence[str]) -> bytes:
    """The bytes of a library with these functions, each a jump to where the table says."""
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in (soname, _TABLE, *names))
    count = 2 + len(names)  # symbols: the empty one, the table, the functions
    symbols_at = _HEADER + 3 * _PROGRAM_HEADER
    hash_at = symbols_at + count * _SYMBOL
    strings_at = hash_at + 4 * (2 + 1 + count)
    code_at = -(-(strings_at + len(strings)) // 16) * 16
    code_end = code_at + _JUMP * len(names)
    dynamic_at = -(-code_end // PAGE) * PAGE
    dynamic = _dynamic(hash_at, strings_at, symbols_at, len(strings))
    table_at = dynamic_at + len(dynamic)
    end = table_at + 8 * len(names)
    symbols = _symbols(strings, names, code_at, table_at)
    jumps = b"".join(_jump(code_at + _JUMP * i, table_at + 8 * i) for i in range(len(names)))
    segments = ((1, 5, 0, code_end), (1, 6, dynamic_at, end - dynamic_at), (2, 6, dynamic_at, len(dynamic)))
    parts = {
        0: _header() + b"".join(_segment(*segment) for segment in segments),
        symbols_at: symbols,
        hash_at: _hash(count),
        strings_at: strings,
        code_at: jumps,
        dynamic_at: dynamic,
    }
    data = bytearray(end)
    for at, part in parts.items():
        data[at : at + len(part)] = part
    return bytes(data)


def _header() -> bytes:
    identity = b"\x7fELF" + bytes((2, 1, 1)) + bytes(9)  # 64 bits, little-endian, version 1
    shared, x86_64 = 3, 62
    return identity + struct.pack(
        "<HHIQQQIHHHHHH", shared, x86_64, 1, 0, _HEADER, 0, 0, _HEADER, _PROGRAM_HEADER, 3, 64, 0, 0
    )


def _segment(kind: int, flags: int, at: int, size: int) -> bytes:
    """A program header: kind 1 is loaded, 2 the dynamic section; addresses are offsets in the file."""
    return struct.pack("<IIQQQQQQ", kind, flags, at, at, at, size, size, PAGE if kind == 1 else 8)


def _symbols(strings: bytes, names: Sequence[str], code_at: int, table_at: int) -> bytes:
    def symbol(name: str, kind: int, at: int, size: int) -> bytes:
        place = strings.index(b"\0" + name.encode() + b"\0") + 1
        return struct.pack("<IBBHQQ", place, 1 << 4 | kind, 0, 1, at, size)  # global, in section 1

    found = [bytes(_SYMBOL), symbol(_TABLE, 1, table_at, 8 * len(names))]
    found += [symbol(name, 2, code_at + _JUMP * i, _JUMP) for i, name in enumerate(names)]
    return b"".join(found)


def _hash(count: int) -> bytes:
    """One bucket that chains all symbols: nobody looks up many."""
    chain = [0, *range(2, count), 0]
    return struct.pack(f"<{3 + count}I", 1, count, 1, *chain)


def _dynamic(hash_at: int, strings_at: int, symbols_at: int, length: int) -> bytes:
    entries = ((14, 1), (4, hash_at), (5, strings_at), (6, symbols_at), (10, length), (11, _SYMBOL), (0, 0))
    return b"".join(struct.pack("<QQ", tag, value) for tag, value in entries)


def _jump(at: int, entry: int) -> bytes:
    return b"\xff\x25" + struct.pack("<i", entry - (at + 6)) + b"\xcc\xcc"  # jmp *entry(%rip)
