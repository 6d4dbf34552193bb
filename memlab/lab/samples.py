"""Samples of a model of the notebooks, as text: how it goes on with a line, or which digits it reads."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from memlab.data import image_batches
from memlab.nets import GPT, ResNet, ViT
from memlab.tracking.compiling import as_written

LETTERS = 40  # of the line that is read
DIGITS = 12
BYTES = 256  # the vocabulary of a GPT that reads text, and not other tokens
GOES_ON = 40  # letters that a run's last sample writes by itself
TEMPERATURE = 0.6
LINE = b"    def __init__(self, name=None, value=0):\n"  # as in nearly every file of the corpus


def sample(values: Iterable[object], *, is_last: bool = False) -> str:
    """Lines of what the first model among the values says now; ``""`` where none of them is a GPT, ViT or ResNet.

    No random numbers are drawn and nothing of the model is changed, so the training is the same without it.

    Args:
        values: the local variables of a training loop.
        is_last: whether time may be taken: a GPT then goes on with the line by itself.
    """
    for model in values:
        if isinstance(model, GPT | ViT | ResNet):
            try:
                return _said(model, is_last)
            except Exception:  # somebody has changed the model, or its card is full: the run goes on without
                return ""
    return ""


def _said(model: GPT | ViT | ResNet, is_last: bool) -> str:
    if not isinstance(model, GPT):
        return _digits(model)
    reads_bytes = model.token_embedding.num_embeddings == BYTES
    return "\n".join(_text(model, is_last)) if reads_bytes else ""


def _text(model: GPT, is_last: bool) -> Iterator[str]:
    letters = torch.frombuffer(bytearray(LINE), dtype=torch.uint8).long()
    letters = letters[: min(LETTERS, model.position_embedding.num_embeddings) + 1]
    random = torch.Generator().manual_seed(0)
    logits = _logits(model, letters[None, :-1])[0]
    yield f"reads:   {_readable(letters[1:])}"
    yield f"guesses: {_readable(_drawn(logits, random))}"
    if is_last:
        yield f"writes:  {_readable(_continued(model, letters, random))}"
    perplexity = cross_entropy(logits, letters[1:]).exp()
    yield f"perplexity: {perplexity:.3g}, of {BYTES} letters to choose from"


def _continued(model: GPT, letters: Tensor, random: torch.Generator) -> Tensor:
    most = model.position_embedding.num_embeddings
    for _ in range(GOES_ON):
        letters = torch.cat([letters, _drawn(_logits(model, letters[None, -most:])[0, -1:], random)])
    return letters[-GOES_ON:]


def _drawn(logits: Tensor, random: torch.Generator) -> Tensor:
    """A letter of each row: the likeliest would long be a space everywhere, and at temperature 1 most are rare ones."""
    return (logits / TEMPERATURE).softmax(-1).multinomial(1, generator=random)[:, 0]


def _digits(model: nn.Module) -> str:
    images, labels = _images(_image_size(model))
    said = _logits(model, images).argmax(-1)
    right = int((said == labels).sum())
    shown, guessed = (" ".join(map(str, digits.tolist())) for digits in (labels, said))
    return f"digits:  {shown}\nguesses: {guessed}\n{right} of {len(labels)} right"


@cache
def _images(size: int) -> tuple[Tensor, Tensor]:
    return next(islice(image_batches(DIGITS, size, split="held-out"), 1))


def _image_size(model: nn.Module) -> int:
    if isinstance(model, ViT):
        return round((len(model.positions) - 1) ** 0.5) * int(model.patches.kernel_size[0])
    return 32  # any size will do


def _logits(model: nn.Module, inputs: Tensor) -> Tensor:
    """The logits that go into the loss, in float32 on the host: taken where the head gives them."""
    head = model.get_submodule("head")
    device = next(model.parameters()).device
    kept: list[Tensor] = []
    hook = head.register_forward_hook(lambda module, given, logits: kept.append(logits.float().cpu()))
    try:
        # Or a compiled model would be compiled anew, for a line and for one that grows: longer than many a run takes.
        with _evaluating(model), as_written(), torch.no_grad():
            targets = torch.zeros(inputs.shape if inputs.dtype is torch.long else len(inputs), dtype=torch.long)
            model(inputs.to(device), targets.to(device))
    finally:
        hook.remove()
    return kept[-1]


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    were_training = {module: module.training for module in model.modules()}  # a frozen part may not be
    model.eval()
    try:
        yield
    finally:
        for module, was_training in were_training.items():
            module.training = was_training


def _readable(letters: Tensor) -> str:
    text = bytes(letters.tolist()).decode("latin-1")
    seen = {" ": "·", "\n": "↵"}
    return "".join(seen.get(one, one if one.isascii() and one.isprintable() else "?") for one in text)
