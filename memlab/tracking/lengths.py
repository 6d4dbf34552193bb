"""CTC loss, which reads the lengths on the host, but not under a dispatch mode: there it mixes devices, and fails.

``at::ctc_loss`` in LossCTC.cpp. Given as lists, they are what it would have read.
"""

from collections.abc import Iterator
from typing import Any

import torch

from memlab.patching import Change, Patches
from memlab.tracking.storages import watching


def _changes() -> Iterator[Change]:
    ctc_loss = torch.ctc_loss

    def read(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *args: Any, **kwargs: Any) -> Any:
        lengths = input_lengths, target_lengths
        are_real = all(type(given) is torch.Tensor for given in lengths)
        if are_real and any(tracker.is_real for tracker in watching()):  # predictions know them otherwise
            lengths = input_lengths.tolist(), target_lengths.tolist()
        return ctc_loss(log_probs, targets, *lengths, *args, **kwargs)

    yield torch, "ctc_loss", read


READ = Patches(_changes)  # a context: where a tracker watches, lengths are read first
