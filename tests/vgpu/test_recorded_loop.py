"""The loop of notebook 15, predicted, and what PyTorch's own CUDA code took of the stand-in for it."""

import json

import pytest
import torch

from memlab import predict
from memlab.nets import GPT2_SMALL
from tests.cuda.caching_allocator import CASES, FILE, loop

TOLD = json.loads(FILE.read_text(encoding="utf-8"))
same_version = torch.__version__.partition("+")[0] == TOLD["torch"].partition("+")[0]


@pytest.mark.skipif(not same_version, reason=f"recorded with torch {TOLD['torch']}")
@pytest.mark.parametrize("case", ["in turn", "long first"])
def test_the_prediction_is_the_record_to_the_byte(case):
    first, second, texts = CASES[case]
    trace = predict(loop(), gpu="T4", first=first, second=second, batch_size=texts, sizes=GPT2_SMALL)
    found = {"allocated": trace.peak_allocated, "reserved": trace.peak_reserved, "fits": trace.oom is None}
    assert found == TOLD["runs"][case]
