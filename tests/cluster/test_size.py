"""The number of ranks, their backend, and what is refused before any process is started."""

import pytest
import torch

from memlab.cluster import launch, measure, size
from memlab.errors import BadTrain, BadValue
from tests.cluster import faulty


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch):
    monkeypatch.setattr(size, "cores", lambda: 2)


def with_gpus(monkeypatch, count):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize(
    ("gpus", "ranks", "device", "expected"),
    [(0, 2, None, "gloo"), (2, 2, None, "nccl"), (1, 2, None, "gloo"), (2, 2, "cpu", "gloo"), (2, 2, "cuda", "nccl")],
)
def test_messages_go_by_nccl_where_there_is_a_gpu_for_each_rank(monkeypatch, gpus, ranks, device, expected):
    with_gpus(monkeypatch, gpus)
    assert size.backend(ranks, device) == expected


@pytest.mark.parametrize(
    ("gpus", "options", "said"),
    [
        (0, {"world_size": 0}, "world_size=0 is not a number of ranks: give a whole number from 1 on."),
        (0, {"world_size": 2.0}, "world_size=2.0 is not a number of ranks"),
        (0, {"world_size": True}, "world_size=True is not a number of ranks"),
        (0, {"world_size": 5}, "world_size=5 is more than this machine can run, with 2 cores and 0 GPUs: give 1 to 4"),
        (0, {"device": "cuda"}, "world_size=2 on 'cuda' needs a GPU for each rank, for NCCL, and torch sees 0 GPUs"),
        (1, {"device": "cuda"}, "world_size=2 on 'cuda' needs a GPU for each rank, for NCCL, and torch sees 1 GPU:"),
        (2, {"device": "cuda:1"}, "device 'cuda:1' cannot train on several ranks"),
        (0, {"timeout": 0}, "timeout=0 is not a time"),
        (0, {"steps": 0}, "steps=0 is not a number of steps"),
        (0, {"depth": 2}, "train has no setting 'depth'"),
        (0, {"folder": object}, "folder=<class 'object'> cannot be sent to the ranks"),
    ],
)
def test_bad_values_are_refused_in_a_sentence(monkeypatch, gpus, options, said):
    with_gpus(monkeypatch, gpus)
    with pytest.raises(BadValue) as caught:
        measure(faulty.train, **options)
    assert str(caught.value).startswith(said)


def test_a_loop_that_the_ranks_cannot_import_is_refused():
    def train(device):
        yield 0

    with pytest.raises(BadTrain, match="the ranks, which are processes of their own, cannot import it"):
        measure(train)


def test_the_ranks_share_the_cores():
    assert [size.threads(ranks) for ranks in (1, 2, 4)] == [2, 1, 1]


def test_the_ranks_threads_sleep_while_they_wait_unless_the_environment_says_how(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert launch._environment(2, "")["OMP_WAIT_POLICY"] == "active"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    assert launch._environment(2, "")["OMP_WAIT_POLICY"] == "passive"
