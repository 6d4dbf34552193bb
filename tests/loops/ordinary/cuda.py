"""Loops that say "cuda", as most do."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.loops.ordinary.catalogue import ordinary, with_outside
from tests.loops.ordinary.small import convnet, mlp, pictures, rows


@with_outside(cuda_only=True)
def model_cuda():
    model = mlp()
    criterion = nn.CrossEntropyLoss().cuda

    def train(device):
        model.cuda()
        loss_of = criterion()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(3):
            x, y = rows()
            loss = loss_of(model(x.cuda(non_blocking=True)), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert loss.is_cuda
            assert next(model.parameters()).is_cuda
            yield loss.cpu().item()

    return train, (model,)


@ordinary(cuda_only=True)
def to_a_string(device):
    model = mlp().to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        x, y = rows()
        loss = F.cross_entropy(model(x.to("cuda:0")), y.to(device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert loss.device.type == "cuda"
        assert str(loss.device) == "cuda:0"
        yield loss


@ordinary(cuda_only=True)
def to_a_number(device):
    model = mlp().to(0)
    for _ in range(3):
        x, y = rows()
        loss = F.cross_entropy(model(x.to(0)), y.cuda(0))
        loss.backward()
        model.zero_grad()
        assert loss.get_device() == 0
        yield loss


@ordinary(cuda_only=True)
def device_if_available(device):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows())
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@ordinary(cuda_only=True)
def made_there(device):
    weight = nn.Parameter(torch.randn(64, 10, device="cuda"))
    table = torch.zeros(10, 64, device="cuda").normal_()
    scale = torch.tensor([2.0, 3.0], device="cuda").prod()
    mask = torch.ones(64, device=torch.device("cuda", 0)).bool()
    numbers = torch.arange(10, device="cuda:0")
    for _ in range(3):
        x = torch.randn(128, 64, device="cuda") * scale * mask
        like = torch.empty_like(x, device="cuda").copy_(x).new_zeros(3)
        loss = F.cross_entropy(x @ weight + table[numbers].sum(), torch.full((128,), 3, device="cuda")) + like.sum()
        loss.backward()
        weight.grad = None
        yield loss


@ordinary(cuda_only=True)
def default_device(device):
    torch.set_default_device("cuda")
    try:
        model = mlp()
        for _ in range(3):
            loss = model(torch.randn(128, 64)).square().mean()
            loss.backward()
            model.zero_grad()
            yield loss
    finally:
        torch.set_default_device(None)


@ordinary(cuda_only=True)
def device_as_context(device):
    with torch.device("cuda"):
        model = mlp()
    assert model[0].weight.is_cuda
    for _ in range(3):
        with torch.cuda.device(0):
            loss = model(torch.randn(128, 64, device="cuda")).square().mean()
            loss.backward()
        model.zero_grad()
        yield loss


@ordinary(cuda_only=True)
def mixed_precision(device):
    model = convnet().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(3):
        x, y = (tensor.cuda() for tensor in pictures())
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(x)
            assert out.dtype == torch.float16
            assert torch.is_autocast_enabled("cuda")
            loss = F.cross_entropy(out, y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() > 0
        yield loss.item()


@ordinary(cuda_only=True, warns="`torch.cuda.amp")
def old_mixed_precision(device):
    model = convnet().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.cuda.amp.GradScaler()
    for _ in range(3):
        x, y = (tensor.cuda() for tensor in pictures())
        with torch.cuda.amp.autocast():
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        yield loss


@ordinary(cuda_only=True)
def memory_printed(device):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model = mlp().to(device)
    name, properties = torch.cuda.get_device_name(0), torch.cuda.get_device_properties(device)
    assert "T4" in name
    assert properties.total_memory > 14 * 2**30
    assert torch.cuda.get_device_capability() == (7, 5)
    for _ in range(3):
        loss = model(torch.randn(128, 64, device=device)).square().mean()
        loss.backward()
        model.zero_grad()
        torch.cuda.synchronize()
        held, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(device)
        assert 0 < held <= peak <= torch.cuda.max_memory_reserved()
        assert torch.cuda.memory_reserved(0) >= held
        free, total = torch.cuda.mem_get_info()
        assert 0 < free < total
        assert f"{peak / 2**20:.1f} MiB {torch.cuda.memory_summary()}"
        assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == held
        torch.cuda.empty_cache()
        yield loss


@ordinary(cuda_only=True)
def timed_with_events(device):
    model = mlp().cuda()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(3):
        start.record()
        torch.cuda.nvtx.range_push("step")
        loss = model(torch.randn(128, 64, device="cuda")).square().mean()
        loss.backward()
        torch.cuda.nvtx.range_pop()
        end.record()
        torch.cuda.synchronize()
        assert start.elapsed_time(end) >= 0
        model.zero_grad()
        yield loss


@ordinary(cuda_only=True)
def prefetch_stream(device):
    stream, model = torch.cuda.Stream(), mlp().cuda()
    for _ in range(3):
        with torch.cuda.stream(stream):
            x = torch.randn(128, 64).pin_memory().cuda(non_blocking=True)
        torch.cuda.current_stream().wait_stream(stream)
        x.record_stream(torch.cuda.current_stream())
        loss = model(x).square().mean()
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary(cuda_only=True)
def pinned_loader(device):
    assert device.type == "cuda", "training needs a GPU"
    loader = DataLoader(TensorDataset(*rows(384)), batch_size=128, shuffle=True, pin_memory=True)
    model = mlp().to(device)
    for x, y in loader:
        loss = F.cross_entropy(model(x.to(device, non_blocking=True)), y.to(device, non_blocking=True))
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary(cuda_only=True)
def seeded_generator(device):
    torch.manual_seed(0)
    torch.cuda.manual_seed_all(0)
    torch.backends.cudnn.benchmark = False
    generator = torch.Generator(device=device).manual_seed(0)
    model = mlp().to(device)
    for _ in range(3):
        x = torch.randn(128, 64, generator=generator, device=device)
        keep = torch.bernoulli(torch.full_like(x, 0.9), generator=generator)
        loss = model(x * keep + torch.rand(128, 64, device=device)).square().mean()
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary(cuda_only=True)
def old_tensor_types(device):
    model = mlp().cuda()
    for _ in range(3):
        x = torch.randn(128, 64).type(torch.cuda.FloatTensor)
        y = torch.randint(0, 10, (128,)).type(torch.LongTensor).cuda()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary(cuda_only=True)
def data_parallel_if_many(device):
    model = mlp().to(device)
    if torch.cuda.device_count() > 1:
        model = nn.DataParallel(model)
    torch.cuda.set_device(0)
    assert torch.cuda.current_device() == 0
    for _ in range(3):
        loss = model(torch.randn(128, 64, device=device)).square().mean()
        loss.backward()
        model.zero_grad()
        yield loss
