"""A leak is told with its bytes, the line that allocates it, and the step in which memory runs out."""

import pytest
import torch
from torch import nn

from memlab import measure, predict

SIZE = 1024  # of a square matrix: 4 MiB


def train(device, *, kept="nothing"):
    model = nn.Linear(SIZE, SIZE).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    outputs, total, ahead = [], 0, None
    table = torch.zeros(SIZE, SIZE, device=device)
    while True:
        batch = ahead if ahead is not None else torch.randn(4 * SIZE, SIZE, device=device)
        ahead = torch.randn(4 * SIZE, SIZE, device=device)
        output = model(batch)
        loss = output.square().mean()
        if kept == "outputs":
            outputs.append(output)
        elif kept == "losses":
            outputs.append(loss)
        elif kept == "total":
            total = total + loss
        elif kept == "averages":
            table = 0.9 * table + 0.1 * model.weight.detach()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def on_leaks(trace):
    return [note for note in trace.notes if note.startswith("Each step leaves ")]


@pytest.mark.parametrize("run", [measure, predict])
def test_outputs_that_are_kept_are_told_with_their_line(run):
    where = {"device": "cpu"} if run is measure else {"gpu": "T4"}
    (said,) = on_leaks(run(train, kept="outputs", steps=3, **where))
    assert said.startswith(
        "Each step leaves 16.0 MiB behind, allocated in line 9 of train and still alive two steps later"
    )


@pytest.mark.parametrize("kept", ["nothing", "losses", "total", "averages"])
def test_a_batch_that_is_fetched_ahead_a_loss_and_an_average_are_no_leaks(kept):
    assert on_leaks(predict(train, kept=kept, steps=6)) == []


def test_the_step_that_is_told_is_the_one_in_which_memory_runs_out():
    (said,) = on_leaks(predict(train, kept="outputs", steps=3, budget="800 MiB"))
    failed = predict(train, kept="outputs", steps=60, budget="800 MiB")
    told = int(said.partition("about step ")[2].partition(":")[0])
    assert failed.oom
    assert told == pytest.approx(len(failed.steps), abs=2)
    assert "memory runs out in" not in on_leaks(failed)[0]  # it has
