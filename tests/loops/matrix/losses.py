"""Losses of torch.nn, and those that people write by hand, on the output of one linear layer."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.loops.case import Case
from tests.loops.matrix.training import train

Loss = Callable[[Tensor, str], Tensor]  # of an output [rows, classes] and a reduction


def cases() -> Iterator[Case]:
    """Each loss by its mean; some also by their sum, without a reduction, and under autocast."""
    for kind in (*POINTWISE, *OF_CLASSES, *OF_PAIRS):
        yield Case(loss, {"kind": kind})
    for kind in ("mse", "l1", "smooth_l1", "huber", "bce_with_logits", "kl_div", "soft_margin", "cross_entropy"):
        for reduction in ("none", "sum"):
            yield Case(loss, {"kind": kind, "reduction": reduction})
    for kind in ("mse", "bce_with_logits", "cross_entropy", "label_smoothing", "probabilities", "cosine_embedding"):
        yield Case(loss, {"kind": kind, "precision": "bf16"})
    for layer in MODULES:
        yield Case(layer_with_loss, {"layer": layer})


def loss(
    device: torch.device,
    *,
    kind: str = "mse",
    reduction: str = "mean",
    rows: int = 3000,
    classes: int = 500,
    precision: str = "fp32",
) -> Iterator[Tensor]:
    """One linear layer and a loss."""
    model = nn.Linear(64, classes)
    compute = (POINTWISE | OF_CLASSES | OF_PAIRS)[kind]

    def forward() -> Tensor:
        result = compute(model(torch.randn(rows, 64).to(device)), reduction)
        return result.mean() if reduction == "none" else result

    yield from train(model, forward, device, precision, "AdamW")


def layer_with_loss(device: torch.device, *, layer: str = "ctc", rows: int = 2000) -> Iterator[Tensor]:
    """A loss that has an input or parameters of its own form."""
    model = MODULES[layer]()
    yield from train(model, lambda: model(torch.randn(rows, 64).to(device)), device, "fp32", "AdamW")


def _like(output: Tensor) -> Tensor:
    return torch.rand(output.shape).to(output.device)


def _labels(output: Tensor, high: int | None = None) -> Tensor:
    return torch.randint(high or output.shape[1], output.shape[:1]).to(output.device)


def _signs(output: Tensor) -> Tensor:
    return (torch.randint(2, output.shape) * 2.0 - 1).to(output.device)


def _positive_weights(output: Tensor, reduction: str) -> Tensor:
    weight = torch.ones(output.shape[1], device=output.device)
    return F.binary_cross_entropy_with_logits(output, _like(output), pos_weight=weight, reduction=reduction)


def _weighted_classes(output: Tensor, reduction: str) -> Tensor:
    weight = torch.ones(output.shape[1], device=output.device)
    return F.cross_entropy(output, _labels(output), weight=weight, reduction=reduction)


def _ignored(output: Tensor, reduction: str) -> Tensor:
    labels = _labels(output)
    labels[::3] = -100
    return F.cross_entropy(output, labels, ignore_index=-100, reduction=reduction)


def _segmentation(output: Tensor, reduction: str) -> Tensor:
    image = output[:2500].view(10, 20, 250, 25)
    return F.cross_entropy(image, torch.randint(20, (10, 250, 25)).to(output.device), reduction=reduction)


def _sequence(output: Tensor, reduction: str) -> Tensor:
    logits = output.view(10, -1, output.shape[1])
    labels = torch.randint(output.shape[1], logits.shape[:2]).to(output.device)
    return F.cross_entropy(logits.transpose(1, 2), labels, label_smoothing=0.1, reduction=reduction)


def _gaussian(output: Tensor, reduction: str) -> Tensor:
    mean, deviation = output.chunk(2, 1)
    return F.gaussian_nll_loss(mean, _like(mean), F.softplus(deviation), reduction=reduction)


def _focal(output: Tensor, reduction: str) -> Tensor:
    losses = F.cross_entropy(output, _labels(output), reduction="none")
    return ((1 - torch.exp(-losses)) ** 2 * losses).mean()


def _dice(output: Tensor, reduction: str) -> Tensor:
    chances, target = output.softmax(1), F.one_hot(_labels(output), output.shape[1])
    overlap = (chances * target).sum(0)
    return (1 - (2 * overlap + 1) / (chances.sum(0) + target.sum(0) + 1)).mean()


def _z_loss(output: Tensor, reduction: str) -> Tensor:
    return F.cross_entropy(output, _labels(output)) + 1e-4 * output.logsumexp(1).square().mean()


def _contrastive(output: Tensor, reduction: str) -> Tensor:
    first, second = F.normalize(output[:1000], dim=1), F.normalize(output[1000:2000], dim=1)
    logits, labels = first @ second.t() / 0.07, torch.arange(1000, device=output.device)
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


def _halves(output: Tensor) -> tuple[Tensor, Tensor]:
    first, second = output.chunk(2, 0)
    return first, second


def _thirds(output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    first, second, third = output.chunk(3, 0)
    return first, second, third


def _pair_signs(output: Tensor) -> Tensor:
    return torch.ones(output.shape[0], device=output.device)


POINTWISE: dict[str, Loss] = {
    "mse": lambda output, reduction: F.mse_loss(output, _like(output), reduction=reduction),
    "l1": lambda output, reduction: F.l1_loss(output, _like(output), reduction=reduction),
    "smooth_l1": lambda output, reduction: F.smooth_l1_loss(output, _like(output), reduction=reduction),
    "huber": lambda output, reduction: F.huber_loss(output, _like(output), reduction=reduction),
    "bce": lambda output, reduction: F.binary_cross_entropy(output.sigmoid(), _like(output), reduction=reduction),
    "bce_with_logits": lambda output, reduction: F.binary_cross_entropy_with_logits(
        output, _like(output), reduction=reduction
    ),
    "pos_weight": _positive_weights,
    "kl_div": lambda output, reduction: F.kl_div(output.log_softmax(1), _like(output), reduction=reduction),
    "kl_div_of_logs": lambda output, reduction: F.kl_div(
        output.log_softmax(1), _like(output).log_softmax(1), reduction="batchmean", log_target=True
    ),
    "poisson_nll": lambda output, reduction: F.poisson_nll_loss(output, _like(output), reduction=reduction),
    "poisson_nll_full": lambda output, reduction: F.poisson_nll_loss(output, _like(output), full=True),
    "gaussian_nll": _gaussian,
    "soft_margin": lambda output, reduction: F.soft_margin_loss(output, _signs(output), reduction=reduction),
    "multilabel_soft_margin": lambda output, reduction: F.multilabel_soft_margin_loss(
        output, _like(output), reduction=reduction
    ),
    "hinge_embedding": lambda output, reduction: F.hinge_embedding_loss(output, _signs(output), reduction=reduction),
    "by_hand": lambda output, reduction: ((output - _like(output)) ** 2).mean(),
    "log_cosh": lambda output, reduction: (output - _like(output)).cosh().log().mean(),
    "charbonnier": lambda output, reduction: ((output - _like(output)).pow(2) + 1e-6).sqrt().mean(),
}
OF_CLASSES: dict[str, Loss] = {
    "cross_entropy": lambda output, reduction: F.cross_entropy(output, _labels(output), reduction=reduction),
    "label_smoothing": lambda output, reduction: F.cross_entropy(
        output, _labels(output), label_smoothing=0.1, reduction=reduction
    ),
    "weighted_classes": _weighted_classes,
    "ignore_index": _ignored,
    "probabilities": lambda output, reduction: F.cross_entropy(output, _like(output).softmax(1), reduction=reduction),
    "smoothed_probabilities": lambda output, reduction: F.cross_entropy(
        output, _like(output).softmax(1), label_smoothing=0.1, reduction=reduction
    ),
    "nll": lambda output, reduction: F.nll_loss(output.log_softmax(-1), _labels(output), reduction=reduction),
    "multi_margin": lambda output, reduction: F.multi_margin_loss(output, _labels(output), reduction=reduction),
    "multilabel_margin": lambda output, reduction: F.multilabel_margin_loss(
        output[:, :50], torch.zeros(output.shape[0], 50, dtype=torch.int64).to(output.device), reduction=reduction
    ),
    "segmentation": _segmentation,
    "sequence": _sequence,
    "focal": _focal,
    "dice": _dice,
    "z_loss": _z_loss,
}
OF_PAIRS: dict[str, Loss] = {
    "cosine_embedding": lambda output, reduction: F.cosine_embedding_loss(
        *_halves(output), _pair_signs(output[::2]), reduction=reduction
    ),
    "triplet_margin": lambda output, reduction: F.triplet_margin_loss(*_thirds(output), reduction=reduction),
    "triplet_swap": lambda output, reduction: F.triplet_margin_loss(*_thirds(output), swap=True, reduction=reduction),
    "triplet_of_cosines": lambda output, reduction: F.triplet_margin_with_distance_loss(
        *_thirds(output), distance_function=lambda x, y: 1 - F.cosine_similarity(x, y), reduction=reduction
    ),
    "margin_ranking": lambda output, reduction: F.margin_ranking_loss(
        *_halves(output.mean(1)), _pair_signs(output[::2]), reduction=reduction
    ),
    "pairwise_distance": lambda output, reduction: F.pairwise_distance(*_halves(output)).mean(),
    "contrastive": _contrastive,
}


class CTC(nn.Module):
    """40 sequences; the lengths are numbers of the host, so none of the card is asked.

    They are no tensors: under a dispatch mode, with which the X-ray looks, PyTorch takes these to the card's kernel.
    """

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 100)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.linear(x).view(-1, 40, 100).log_softmax(2)
        targets = torch.randint(1, 100, (40, 20)).to(x.device)
        given: Any = (scores.shape[0],) * 40  # tuples, which PyTorch documents and does not type
        wanted: Any = (20,) * 40
        return F.ctc_loss(scores, targets, given, wanted, zero_infinity=True)


class Products(nn.Module):
    """Each row against a table of 4,000, as in retrieval: the logits are larger than all else."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(4000, 64))

    def forward(self, x: Tensor) -> Tensor:
        return F.cross_entropy(x @ self.table.t(), torch.zeros(x.shape[0], dtype=torch.int64, device=x.device))


MODULES: dict[str, Callable[[], nn.Module]] = {"ctc": CTC, "products": Products}
