"""The optimizer's step taken inside backward, so that hardly any gradient is alive at a time."""

from collections.abc import Callable, Iterable

from torch import nn
from torch.optim import Optimizer


def step_in_backward(
    parameters: Iterable[nn.Parameter], make_optimizer: Callable[[list[nn.Parameter]], Optimizer]
) -> dict[nn.Parameter, Optimizer]:
    """Give every parameter an optimizer of its own, which steps as soon as backward has its gradient, and frees that.

    The loop is then ``loss.backward()`` alone. What needs all gradients at once (clipping by their norm, a
    ``GradScaler``) or more than one backward for a step (accumulation) cannot be had together with it.

    Args:
        parameters: those to train; a parameter that needs no gradient is left out.
        make_optimizer: called with a list of one parameter, as in ``partial(torch.optim.AdamW, lr=1e-3)``.

    Returns:
        The optimizer of each parameter, to change learning rates or to save state; each parameter has it as its
        ``optimizer``, too.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in trained:
        # An attribute, and a hook that holds nothing: Python's garbage collector cannot see into a parameter's hooks,
        # so a hook that leads back to its parameter would keep both for ever.
        parameter.optimizer = make_optimizer([parameter])  # type: ignore[attr-defined]
        parameter.register_post_accumulate_grad_hook(_step)
    return {parameter: _optimizer(parameter) for parameter in trained}


def _optimizer(parameter: nn.Parameter) -> Optimizer:
    return parameter.optimizer  # type: ignore[attr-defined]


def _step(parameter: nn.Parameter) -> None:
    _optimizer(parameter).step()
    _optimizer(parameter).zero_grad()
