import math

import numpy as np
import pytest
import torch

from memlab.data import batches, corpus, text
from memlab.errors import BadValue
from memlab.nets import GPT


def test_the_splits_are_files_apart(monkeypatch, tmp_path):
    names = [f"{i:02}.py" for i in range(25)]
    for name in names:
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(text, "_sources", lambda: sorted(tmp_path.iterdir()))
    train, held_out = (corpus.__wrapped__(split).tobytes().decode().splitlines() for split in ("train", "held-out"))
    assert held_out == ["00.py", "10.py", "20.py"]
    assert sorted(train + held_out) == names


def test_the_corpus_is_python_and_large_enough_to_learn_from():
    train, held_out = corpus("train"), corpus("held-out")
    assert train.dtype == np.uint8
    assert len(train) > 1_000_000
    assert len(held_out) > 100_000
    assert train.tobytes().count(b"\ndef ") > 1000


def test_a_batch_is_windows_of_the_corpus_and_targets_are_the_next_bytes():
    tokens, targets = next(batches(6, 40))
    assert tokens.shape == targets.shape == (6, 40)
    assert tokens.dtype == targets.dtype == torch.int64
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    text = corpus().tobytes()
    for row, last in zip(tokens, targets[:, -1], strict=True):
        assert bytes([*row.tolist(), int(last)]) in text


def test_a_batch_of_the_held_out_split_is_from_there():
    tokens, _ = next(batches(2, 100, split="held-out"))
    assert bytes(tokens[0].tolist()) in corpus("held-out").tobytes()


def first_tokens(**settings):
    return next(batches(4, 16, **settings))[0]


def test_batches_repeat_by_seed():
    assert torch.equal(first_tokens(seed=3), first_tokens(seed=3))
    assert not torch.equal(first_tokens(seed=3), first_tokens(seed=4))
    stream = batches(4, 16)
    assert not torch.equal(next(stream)[0], next(stream)[0])


def test_batches_leave_the_global_random_state_alone():
    state = torch.get_rng_state()
    first_tokens()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("split", ["test", "", None])
def test_an_unknown_split_is_named_with_what_is_legal(split):
    with pytest.raises(BadValue) as caught:
        next(batches(1, 8, split=split))
    assert str(caught.value) == f"split {split!r} is not known: give 'train' or 'held-out'."


def unigram_entropy(text):
    """Nats a byte: the best that a model can do that knows how frequent each byte is, and no more."""
    frequencies = np.bincount(text) / len(text)
    return -sum(p * math.log(p) for p in frequencies if p)


def test_a_small_gpt_learns_more_than_how_frequent_bytes_are():
    torch.manual_seed(0)
    model = GPT(depth=2, width=64, heads=2, context=32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _, (tokens, targets) in zip(range(200), batches(16, 32), strict=False):
        model(tokens, targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        held_out = model(*next(batches(512, 32, split="held-out")))
    assert float(held_out) < unigram_entropy(corpus("held-out")) - 0.3
