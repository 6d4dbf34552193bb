"""Python objects among ranks of which only one is there."""

import pytest
import torch
import torch.distributed.checkpoint
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from memlab import predict
from memlab.errors import Unpredictable

RANKS = 4


def of_rank(rank, collective):
    """Return the list of a rank after a collective."""
    found = []

    def train(device):
        found.extend(collective(device))
        yield torch.ones((), device=device)

    predict(train, world_size=RANKS, global_rank=rank, steps=1)
    return found


def gather_all(device):
    objects = [None] * RANKS
    distributed.all_gather_object(objects, {"loss": 1.5, "seen": torch.ones(3, device=device)})
    return [len({id(each) for each in objects}), objects[-1]["loss"], objects[-1]["seen"].shape]


def gather(device):
    objects = [None] * RANKS if distributed.get_rank() == 0 else None
    distributed.gather_object("mine", objects, dst=0)
    return objects or []


def broadcast(device):
    objects = [7 if distributed.get_rank() == 0 else None]
    distributed.broadcast_object_list(objects, src=0)
    return objects


def scatter(device):
    objects = [None]
    distributed.scatter_object_list(objects, list(range(RANKS)) if distributed.get_rank() == 0 else None, src=0)
    return objects


def test_what_the_other_ranks_send_is_like_what_this_one_sends():
    assert of_rank(3, gather_all) == [RANKS, 1.5, (3,)]  # each an object of its own
    assert of_rank(0, gather) == ["mine"] * RANKS
    assert of_rank(3, gather) == []


@pytest.mark.parametrize(("collective", "found"), [(broadcast, 7), (scatter, 0)])
def test_a_rank_that_sends_objects_has_its_own_and_one_that_waits_for_them_is_not_predicted(collective, found):
    assert of_rank(0, collective) == [found]
    with pytest.raises(Unpredictable, match=r"Rank 2 waits in .* predict the rank that sends them"):
        of_rank(2, collective)


def test_a_checkpoint_of_the_whole_model_is_loaded_into_pieces():
    def train(device):
        with torch.device(device):
            model = nn.Linear(256, 256)
        fully_shard(model)
        whole = {"weight": torch.ones(256, 256), "bias": torch.ones(256)} if distributed.get_rank() == 0 else {}
        yield
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(model, whole, options=options)
        yield

    weight = 4 * 256 * 256
    pieces = weight // RANKS + 512  # of the bias, as small as the allocator makes a block
    assert predict(train, world_size=RANKS, steps=2).steps[1].peak_allocated == pieces + weight  # which is broadcast


def test_pieces_are_saved_as_a_distributed_checkpoint(tmp_path):
    def train(device):
        with torch.device(device):
            model = nn.Linear(256, 256)
        fully_shard(model)
        yield
        distributed.checkpoint.save(model.state_dict(), checkpoint_id=tmp_path / "checkpoint")
        yield

    resident = 4 * 256 * 256 // RANKS + 512
    assert predict(train, world_size=RANKS, steps=2).steps[1].peak_allocated == resident  # nothing is gathered


def test_gradients_are_sent_in_bfloat16_as_with_nccl():
    def train(device, hook=False):
        model = DistributedDataParallel(nn.Linear(256, 256).to(device))
        if hook:
            model.register_comm_hook(None, bf16_compress_hook)
        while True:
            loss = model(torch.ones(2, 256, device=device)).sum()
            loss.backward()
            yield loss

    plain, halved = (predict(train, world_size=RANKS, steps=2, hook=hook).sent for hook in (False, True))
    gradients = 4 * (256 * 256 + 256)
    assert plain - halved == 2 * (RANKS - 1) / RANKS * gradients / 2
