"""Functions of one's own, hooks, checkpoints, higher orders, ``torch.func``."""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.loops.ordinary.catalogue import ordinary, with_outside
from tests.loops.ordinary.small import mlp, rows


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x.square() @ weight

    @staticmethod
    def backward(ctx, arriving):
        x, weight = ctx.saved_tensors
        of_x = of_weight = None
        if ctx.needs_input_grad[0]:
            of_x = (arriving @ weight.t()) * 2 * x
        if ctx.needs_input_grad[1]:
            of_weight = x.square().t() @ arriving
        return of_x, of_weight


@ordinary()
def function_of_ones_own(device):
    model = nn.Linear(64, 64).to(device)
    weight = nn.Parameter(torch.randn(64, 10, device=device) * 0.01)
    optimizer = torch.optim.SGD([*model.parameters(), weight], lr=0.01)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows(512))
        loss = F.cross_entropy(Squared.apply(model(x), weight), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.sign(x)

    @staticmethod
    def backward(ctx, arriving):
        return arriving.clamp(-1, 1)


@ordinary()
def straight_through(device):
    one, two = nn.Linear(64, 128).to(device), nn.Linear(128, 10).to(device)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows(512))
        hidden = one(x)
        hidden = Straight.apply(hidden) + (hidden - hidden.detach())
        loss = F.cross_entropy(two(hidden), y)
        loss.backward()
        one.zero_grad()
        two.zero_grad()
        yield loss


@with_outside()
def hooks_that_read_norms():
    model = mlp()
    norms, shapes = {}, {}
    for name, module in model.named_children():
        module.register_forward_hook(lambda m, args, out, name=name: shapes.update({name: tuple(out.shape)}))

    def train(device):
        model.to(device)
        for name, parameter in model.named_parameters():
            parameter.register_hook(lambda g, name=name: norms.update({name: g.norm().item()}))
        handle = model[2].register_full_backward_hook(lambda m, into, out: norms.update(out=out[0].norm().item()))
        for _ in range(3):
            x, y = (tensor.to(device) for tensor in rows())
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            assert len(norms) == 7
            assert shapes["4"] == (128, 10)
            total = sum(p.grad.norm().item() ** 2 for p in model.parameters()) ** 0.5
            assert total >= 0
            model.zero_grad()
            yield loss
        handle.remove()

    return train, (model,)


@ordinary()
def optimizer_in_backward(device):
    model = mlp().to(device)
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows(512))
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        yield loss


@ordinary()
def optimizer_in_backward_of_a_moved_model(device):
    """The hooks are there before the parameters move."""
    model = mlp()
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    model.to(device)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows(32))
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        assert all(p.grad is None for p in model.parameters())
        yield loss


def checkpointed(device, run):
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(6))).to(device)
    head = nn.Linear(64, 10).to(device)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows(512))
        loss = F.cross_entropy(head(run(model, x)), y)
        loss.backward()
        model.zero_grad()
        head.zero_grad()
        yield loss


@ordinary()
def sequential_checkpoints(device):
    yield from checkpointed(device, lambda model, x: checkpoint_sequential(model, 3, x, use_reentrant=False))


@ordinary()
def checkpoints(device):
    def run(model, x):
        for block in model:
            x = checkpoint(block, x, use_reentrant=False)
        return x

    yield from checkpointed(device, run)


@ordinary()
def reentrant_checkpoints(device):
    def run(model, x):
        x.requires_grad_()
        for block in model:
            x = checkpoint(block, x, use_reentrant=True)
        return x

    yield from checkpointed(device, run)


@ordinary()
def maml_by_functional_call(device):
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        total = 0
        for _ in range(2):
            x, y = (tensor.to(device) for tensor in rows())
            parameters = dict(model.named_parameters())
            inner = F.cross_entropy(functional_call(model, parameters, (x,)), y)
            gradients = torch.autograd.grad(inner, list(parameters.values()), create_graph=True)
            fast = {name: p - 0.1 * g for (name, p), g in zip(parameters.items(), gradients, strict=True)}
            total = total + F.cross_entropy(functional_call(model, fast, (x,)), y)
        total.backward()
        optimizer.step()
        yield total.item()


@ordinary(differs="the CPU's one thread runs the nodes of two backward passes in another order than CUDA's two")
def maml_by_torch_func(device):
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loss_of(parameters, x, y):
        return F.cross_entropy(functional_call(model, parameters, (x,)), y)

    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows())
        parameters = dict(model.named_parameters())
        gradients = grad(loss_of)(parameters, x, y)
        fast = {name: parameters[name] - 0.1 * gradients[name] for name in parameters}
        loss = loss_of(fast, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@ordinary()
def gradients_of_each_sample(device):
    model = mlp().to(device)

    def loss_of(parameters, x, y):
        return F.cross_entropy(functional_call(model, parameters, (x[None],)), y[None])

    each = vmap(grad(loss_of), in_dims=(None, 0, 0))
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows(16))
        parameters = {name: p.detach() for name, p in model.named_parameters()}
        gradients = each(parameters, x, y)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                clipped = gradients[name] / gradients[name].flatten(1).norm(dim=1).clamp(min=1).view(
                    -1, *[1] * parameter.dim()
                )
                parameter -= 0.1 * clipped.mean(0)
            loss = F.cross_entropy(model(x), y)
        yield loss


@ordinary()
def physics_informed(device):
    model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        x = torch.rand(256, 1, device=device, requires_grad=True)
        u = model(x)
        du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
        ddu = torch.autograd.grad(du.sum(), x, create_graph=True)[0]
        loss = (ddu + u).square().mean() + (model(torch.zeros(1, 1, device=device)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


@ordinary()
def adversarial_examples(device):
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows())
        delta = torch.zeros_like(x, requires_grad=True)
        for _ in range(2):
            F.cross_entropy(model(x + delta), y).backward()
            delta.data = (delta + 0.1 * delta.grad.detach().sign()).clamp(-0.3, 0.3)
            delta.grad.zero_()
        loss = F.cross_entropy(model(x + delta.detach()), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@ordinary(warns="Anomaly Detection")
def anomaly_detection(device):
    model = mlp().to(device)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows())
        with torch.autograd.detect_anomaly(check_nan=True):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
        model.zero_grad()
        yield loss


@ordinary()
def saved_tensors_packed(device):
    """Activations kept in half precision."""
    model = mlp().to(device)

    def pack(tensor):
        return tensor.half() if tensor.dtype is torch.float32 and not isinstance(tensor, nn.Parameter) else tensor

    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows())
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.float() if t.dtype is torch.float16 else t):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        model.zero_grad()
        yield loss
