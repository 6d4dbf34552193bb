"""One rank of many: ordinary code of torch.distributed on the virtual GPU, without any other rank."""

import os

import pytest
import torch
from torch import distributed, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from memlab import predict
from memlab.errors import BadValue
from memlab.nets import MLP
from memlab.trace import Category
from tests.vgpu.once import in_a_prediction

DEPTH, WIDTH = 4, 256
PARAMETERS = 4 * DEPTH * (WIDTH * WIDTH + WIDTH)  # bytes


def steps(model, device, width=WIDTH):
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        loss = model(torch.ones(8, width, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def replicated(device, *, bucket_cap_mb=25, gradient_as_bucket_view=False):
    model = MLP(DEPTH, WIDTH).to(device)
    options = {"bucket_cap_mb": bucket_cap_mb, "gradient_as_bucket_view": gradient_as_bucket_view}
    yield from steps(DistributedDataParallel(model, **options), device)


def sharded(device, *, reshard=True, on_meta=False, fill=False):
    with torch.device("meta" if on_meta else device):
        model = MLP(DEPTH, WIDTH)
    for layer in model.blocks:
        fully_shard(layer, reshard_after_forward=reshard)
    fully_shard(model, reshard_after_forward=reshard)
    if on_meta:
        model.to_empty(device=device)
    if fill:
        for parameter in model.parameters():
            nn.init.normal_(parameter)
    yield from steps(model, device)


def flattened(device, *, strategy="FULL_SHARD"):
    options = {"sharding_strategy": ShardingStrategy[strategy], "use_orig_params": True}
    model = FullyShardedDataParallel(MLP(DEPTH, WIDTH).to(device), device_id=device, **options)
    yield from steps(model, device)


def tensor_parallel(device):
    mesh = init_device_mesh(device.type, (distributed.get_world_size(),))
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).to(device)
    yield from steps(parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}), device)


def of(trace, category):
    return trace.start.get(category, 0)


def test_a_sharded_model_is_named_as_its_class_was_written():
    assert {"MLP", "blocks.0"} <= {event.module for event in predict(sharded, world_size=2).events}


def test_pieces_that_are_filled_at_random_are_as_large_as_those_that_are_not():
    filled = predict(sharded, world_size=4, on_meta=True, fill=True)
    assert filled.by_category == predict(sharded, world_size=4, on_meta=True).by_category


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "SHARD_GRAD_OP"])
def test_the_older_fsdp_holds_pieces_too(strategy):
    trace = predict(flattened, world_size=4, strategy=strategy)
    assert of(trace, Category.PARAMETER) == PARAMETERS // 4
    assert of(trace, Category.OPTIMIZER_STATE) == 2 * PARAMETERS // 4


def test_a_replica_holds_everything_and_buckets_as_large_as_the_gradients():
    trace = predict(replicated, world_size=4)
    assert (trace.rank, trace.world_size) == (0, 4)
    assert of(trace, Category.PARAMETER) == PARAMETERS
    assert of(trace, Category.OPTIMIZER_STATE) == 2 * PARAMETERS
    assert of(trace, Category.COMMUNICATION) == PARAMETERS


def test_gradients_that_are_views_of_the_buckets_need_no_second_copy():
    trace = predict(replicated, world_size=4, gradient_as_bucket_view=True)
    assert Category.COMMUNICATION not in trace.start
    assert of(trace, Category.GRADIENT) == PARAMETERS


@pytest.mark.parametrize("bucket_cap_mb", [25, 0.1])
@pytest.mark.parametrize("world_size", [1, 2, 1000])
def test_a_replica_sends_its_gradients_around_the_ring(world_size, bucket_cap_mb):
    trace = predict(replicated, world_size=world_size, bucket_cap_mb=bucket_cap_mb)
    rounded_down = 2 * PARAMETERS * (world_size - 1) // world_size - trace.sent  # by less than a byte a bucket
    assert 0 <= rounded_down < 2 * DEPTH


@pytest.mark.parametrize("world_size", [2, 8, 64])
@pytest.mark.parametrize("on_meta", [False, True])
def test_a_shard_holds_its_part_of_everything(world_size, on_meta):
    trace = predict(sharded, world_size=world_size, on_meta=on_meta)
    assert of(trace, Category.PARAMETER) == PARAMETERS // world_size
    assert of(trace, Category.OPTIMIZER_STATE) == 2 * PARAMETERS // world_size
    assert Category.HELD not in trace.start


def test_parameters_are_freed_after_their_layer_has_run():
    both = [predict(sharded, world_size=8, reshard=reshard) for reshard in (True, False)]
    at_most = [max(trace.timeline[Category.PARAMETER]) - PARAMETERS // 8 for trace in both]
    layer = PARAMETERS // DEPTH
    assert at_most[0] <= 2 * layer  # one at work, and the next one on its way
    assert at_most[1] >= PARAMETERS


def test_a_shard_gathers_twice_and_scatters_once():
    trace = predict(sharded, world_size=8)
    assert trace.sent == 3 * PARAMETERS * 7 // 8


def summed_on_a_mesh(device, *, side):
    mesh = init_device_mesh(device.type, (distributed.get_world_size() // 8, 8), mesh_dim_names=("data", "tensor"))
    total = torch.ones(64, device=device)
    distributed.all_reduce(total, group=mesh[side].get_group())
    yield total.sum()


def test_what_leaves_the_machine_is_what_goes_to_ranks_of_others():
    inside, outside = (predict(summed_on_a_mesh, world_size=64, side=side, steps=1) for side in ("tensor", "data"))
    assert inside.sent == outside.sent == 2 * 4 * 64 * 7 // 8
    assert (inside.sent_to_other_machines, outside.sent_to_other_machines) == (0, outside.sent)
    assert predict(summed_on_a_mesh, world_size=8, side="tensor", steps=1).sent_to_other_machines == 0


def test_of_a_ring_over_machines_each_rank_counts_its_share():
    trace = predict(replicated, world_size=64)
    assert trace.sent_to_other_machines == pytest.approx(trace.sent / 8, abs=DEPTH)


def exchanged(device):
    parts = torch.ones(16, 64, device=device)
    distributed.all_to_all_single(torch.empty_like(parts), parts)
    yield parts.sum()


def test_what_each_rank_sends_to_each_leaves_where_the_receiver_is_elsewhere():
    trace = predict(exchanged, world_size=16, steps=1)
    assert (trace.sent, trace.sent_to_other_machines) == (15 * 256, 8 * 256)


def handed_on(device):
    rank = distributed.get_rank()
    distributed.send(torch.ones(64, device=device), dst=(rank + 1) % distributed.get_world_size())
    yield torch.ones(1, device=device)


@pytest.mark.parametrize(("global_rank", "leaves"), [(3, False), (7, True), (15, True)])
def test_a_message_leaves_the_machine_with_its_receiver(global_rank, leaves):
    trace = predict(handed_on, world_size=16, global_rank=global_rank, steps=1)
    assert (trace.sent, trace.sent_to_other_machines) == (256, 256 * leaves)


def normed_in_parts(device):
    mesh = init_device_mesh(device.type, (distributed.get_world_size(),))
    norm = parallelize_module(nn.RMSNorm(WIDTH).to(device), mesh, SequenceParallel(use_local_output=True))
    loss = norm(torch.ones(2, 8, WIDTH, device=device)).sum()
    loss.backward()
    yield loss


def test_a_state_dict_that_is_gathered_to_the_host_is_on_the_card_a_tensor_at_a_time():
    def saved(device):
        with torch.device(device):
            model = nn.Sequential(*(nn.Linear(256, 256, bias=False) for _ in range(4)))
        fully_shard(model)
        yield
        get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        yield

    weight = 4 * 256 * 256
    # Gathered once: who waits for it gets the gathered tensor itself.
    assert predict(saved, world_size=8, steps=2).steps[1].peak_allocated == 4 * weight // 8 + weight


def test_a_batch_norm_over_all_ranks_sends_its_statistics_and_guesses_nothing():
    def train(device, ranks_together=True):
        layers = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64)).to(device)
        model = nn.SyncBatchNorm.convert_sync_batchnorm(layers) if ranks_together else layers
        while True:
            loss = model(torch.ones(8, 3, 32, 32, device=device)).square().mean()
            loss.backward()
            yield loss

    trace = predict(train, world_size=4, steps=2)
    assert trace.guesses == ()
    gathered = 3 * (2 * 64 + 1) * 4  # to three others: means and deviations of the channels, and how many numbers
    assert trace.sent == gathered + 2 * 3 / 4 * 2 * 64 * 4  # backward adds up two sums for each channel
    alone = predict(train, world_size=4, steps=2, ranks_together=False)
    assert trace.peak_allocated < alone.peak_allocated + 2**16  # both keep the input; statistics are small


def test_the_statistics_of_a_batch_norm_over_all_ranks_are_tensors_of_their_own():
    def train(device):
        images = torch.ones(2, 1024, 4, 4, device=device)
        yield
        statistics = torch.batch_norm_stats(images, 1e-5)
        yield
        del statistics

    before, after = (step.peak_allocated for step in predict(train, steps=2).steps)
    assert after - before == 2 * 4 * 1024  # mean and deviation, as PyTorch's CUDA build has them on the stand-in


def test_the_norm_of_a_dtensor_is_one_operator_as_cuda_has_it():
    operators = {event.op for event in predict(normed_in_parts, world_size=2, steps=1).events}
    assert "aten._fused_rms_norm" in operators
    assert "aten.rsqrt" not in operators


def test_tensor_parallel_layers_hold_their_part():
    whole, part = (predict(tensor_parallel, world_size=ranks) for ranks in (1, 4))
    matrices = 4 * 2 * 256 * 1024
    assert of(whole, Category.PARAMETER) == matrices + 4 * (1024 + 256)
    assert of(part, Category.PARAMETER) == matrices // 4 + 4 * (1024 // 4 + 256)


def test_the_same_again_in_one_process():
    for loop in (sharded, tensor_parallel, replicated):
        first, second = (predict(loop, world_size=4) for _ in range(2))
        assert first == second


def test_a_loop_learns_its_rank_as_from_torchrun():
    found = {}

    def train(device):
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
        found["environment"] = [os.environ[name] for name in names]
        found["group"] = distributed.get_rank(), distributed.get_world_size()
        found["cards"] = torch.cuda.device_count()
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        found["device"] = torch.ones(1, device=f"cuda:{os.environ['LOCAL_RANK']}").device, device
        yield None

    before = dict(os.environ)
    predict(train, world_size=20, global_rank=13)
    assert found["environment"] == ["13", "5", "20", "8"]
    assert found["group"] == (13, 20)
    assert found["cards"] == 8
    assert found["device"] == (torch.device("cuda", 0),) * 2
    assert dict(os.environ) == before
    assert not distributed.is_initialized()


def test_after_an_error_nothing_is_left():
    def train(device):
        yield None
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        predict(train, world_size=2)
    assert not distributed.is_initialized()
    assert "RANK" not in os.environ


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ({"world_size": 0}, r"world_size=0 is not a number of ranks: give a whole number from 1 on\."),
        ({"world_size": "8"}, r"world_size='8' is not a number of ranks"),
        ({"world_size": 4, "global_rank": 4}, r"global_rank=4 is not a rank of 4: give one from 0 to 3\."),
        ({"global_rank": 1}, r"global_rank=1 is not a rank of 1: give one from 0 to 0\."),
    ],
)
def test_ranks_that_cannot_be(ranks, words):
    with pytest.raises(BadValue, match=words):
        predict(replicated, **ranks)


def test_a_process_that_is_in_a_group_already():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(BadValue, match=r"needs a process group of its own, and this process has one of 1 ranks"):
            predict(replicated, world_size=2)
        assert distributed.get_backend() == "gloo"
    finally:
        distributed.destroy_process_group()


# Tensors that are put into others


def test_data_is_put_into_a_parameter_of_the_host_and_is_the_hosts_again_after_it():
    model = nn.Linear(40, 40)
    before = model.weight.detach().clone()

    def work(device):
        model.weight.data = model.weight.data.to(device)
        return model.weight.device, type(model.weight).__name__

    assert in_a_prediction(work)[0][0] == torch.device("cuda", 0)
    assert model.weight.device.type == "cpu"
    assert torch.equal(model.weight, before)


def test_a_parameter_that_nobody_has_any_more_is_free():
    def work(device):
        model = nn.Linear(16, 16).to(device)
        before = torch.cuda.memory_allocated()
        del model
        return before, torch.cuda.memory_allocated()

    before, after = in_a_prediction(work)[0]
    assert before > after == 0


def test_a_sharded_weight_that_two_layers_share_takes_bytes_once():
    allocated = {}

    def train(device, *, tied):
        with torch.device("meta"):
            model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False))
        if tied:
            model[1].weight = model[0].weight
        fully_shard(model)
        model.to_empty(device=device)
        allocated[tied] = torch.cuda.memory_allocated()
        yield None

    for tied in (True, False):
        predict(train, world_size=2, tied=tied)
    assert allocated == {True: 4 * 64 * 64 // 2, False: 2 * 4 * 64 * 64 // 2}


@pytest.mark.parametrize("last", [0, 1])
def test_where_memory_runs_out_before_a_bucket_is_sent_buckets_are_communication(last):
    """In the first step, and in the second, which has made its buckets anew."""

    def train(device):
        model = DistributedDataParallel(MLP(DEPTH, WIDTH).to(device))
        for step in range(last + 1):
            out = model(torch.ones(8, WIDTH, device=device))
            if step == last:
                torch.empty(2**40, device=device)
            loss = out.square().mean()
            loss.backward()
            yield loss

    trace = predict(train, world_size=8)
    assert trace.oom is not None
    assert trace.timeline[Category.COMMUNICATION][-1] == PARAMETERS
