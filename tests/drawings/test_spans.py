"""The largest tensors of a step: when they are born, when they end, and which the step began with."""

import pytest
import torch
from torch.nn import functional as F

from memlab import drawings, predict
from memlab.data import batches
from memlab.drawings.spans import spans_of
from memlab.nets import GPT

SIZES = {"depth": 2, "width": 64, "heads": 2, "context": 64, "vocabulary": 4096}
TABLE = 4 * 64 * 4096 * 4  # batch, tokens, vocabulary, bytes of a number


def train(device, *, delete=False):
    model = GPT(**SIZES).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, targets in batches(4, SIZES["context"]):
        logits = model.head(model.features(tokens.to(device)))
        loss = F.cross_entropy(logits.flatten(0, 1), targets.to(device).flatten())
        if delete:
            del logits
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


@pytest.fixture(scope="module")
def runs():
    return {"held": predict(train), "deleted": predict(train, delete=True)}


def test_a_name_holds_the_logits_through_the_next_forward(runs):
    held = runs["held"]
    old, new, *others = spans_of(held)
    assert (old.op, old.begin, old.bytes) == ("", 0, TABLE)
    assert (new.op, new.end, new.bytes) == ("aten.mm", len(held.events), TABLE)
    assert old.end == new.begin + 1
    assert [one.op for one in others] == [
        "aten._log_softmax",
        "aten.nll_loss_backward",
        "aten._log_softmax_backward_data",
    ]


def test_deleted_they_end_before_the_peak(runs):
    deleted = runs["deleted"]
    logits, *others = spans_of(deleted)
    assert logits.op == "aten.mm"
    assert logits.end < deleted.peak_index
    assert len(others) == 3


def test_a_row_has_the_name_that_was_given(runs):
    names = {"": "of the step before", "aten.mm": "logits"}
    picture = drawings.spans(runs, names=names, title="a title")
    assert picture.sentence == "a title"
    one, other = picture.axes
    rows = [label.get_text() for label in one.get_yticklabels()]
    assert rows[:3] == ["of the step before", "logits", "aten._log_softmax"]
    assert one.get_xlim() == other.get_xlim()
    assert picture.png().startswith(b"\x89PNG")
