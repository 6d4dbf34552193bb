"""The process that cuDNN runs in: ``python -m memlab.vgpu.cudnn LIBRARY``.

Each line that it reads is a question, ``[capability, fields of a convolution]``; each line that it writes is the
answer, a list of bytes, or null where cuDNN does not take the question. It ends with its input.
"""

import json
import os
import sys
from collections.abc import Iterable

from memlab.vgpu.cudnn import stubs
from memlab.vgpu.cudnn.backend import Cudnn, CudnnError, Descriptor
from memlab.vgpu.cudnn.convolution import Convolution
from memlab.vgpu.cudnn.plans import device, workspaces


def main(library: str) -> None:
    # What cuDNN itself prints must not come between the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _kept = stubs.load()
    cudnn = Cudnn(library)
    cards: dict[int, Descriptor] = {}
    for line in sys.stdin:
        capability, fields = json.loads(line)
        try:
            if capability not in cards:
                cards[capability] = device(cudnn, capability)
            question = Convolution.from_json(fields)
            sizes = workspaces(cudnn, cards[capability], question)
            answer = list(dict.fromkeys(sizes)) if question.benchmark else _falling(sizes)
        except CudnnError:
            answer = None
        print(json.dumps(answer), file=out, flush=True)


def _falling(sizes: Iterable[int]) -> list[int]:
    """The first, and each smaller than all before it: a plan that needs more than one that failed fails, too."""
    found: list[int] = []
    for size in sizes:
        if not found or size < found[-1]:
            found.append(size)
        if size == 0:  # for which there is always memory
            break
    return found


if __name__ == "__main__":
    main(sys.argv[1])
