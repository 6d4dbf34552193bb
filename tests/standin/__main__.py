"""Run Python on a card that is not there: ``python -m tests.standin CARD [-m MODULE | SCRIPT] [ARGUMENTS]``.

The card is one of ``memlab.vgpu.CARDS``, or ``CARD:COUNT`` for several. What else can be said stands in the
environment: see README.md.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from memlab.errors import BadValue
from tests.standin import build
from tests.standin.cards import described

ROOT = Path(__file__).parents[2]


def environment(card: str, before: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that sees ``card``, and memlab; the stand-ins are built if they are not yet there.

    Raises:
        NoStandIn: they cannot be built here.
        BadValue: for an unknown card.
    """
    name, _, count = card.partition(":")
    told = {"STANDIN_CARD": described(name), "STANDIN_COUNT": count or "1"}
    folder = build.built()
    preloaded = [folder / library for library in (folder / "preload").read_text().split()]
    told |= {"LD_PRELOAD": ":".join(map(str, preloaded)), "TRITON_LIBCUDA_PATH": str(folder)}
    inside = [next(folder.glob(f"{library}.so.*[0-9]")) for library in ("libcudart", "libcublasLt", "libnvrtc")]
    told["STANDIN_BESIDE_CUDNN"] = ":".join(map(str, [*inside, folder / "nodriver" / "libcuda.so.1"]))
    told["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), before.get("PYTHONPATH")]))
    return {"STANDIN_CUDNN": str(build.NVIDIA / "cudnn" / "lib" / "libcudnn.so.9"), **before, **told}


def main(arguments: list[str]) -> int:
    """Become the Python that was asked for; 2 with a sentence if that cannot be."""
    try:
        if len(arguments) < 2:
            raise BadValue("give a card and what to run on it, as in: python -m tests.standin T4 script.py")
        told = environment(arguments[0], os.environ)
    except (build.NoStandIn, BadValue) as error:
        print(error, file=sys.stderr)
        return 2
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *arguments[1:]], told)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
