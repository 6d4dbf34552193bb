import re

import pytest
import torch

from memlab import Challenge
from memlab.errors import BadTrain, BadValue
from memlab.nets import MLP
from memlab.units import format_bytes

WIDTH, DEPTH = 32, 4


def train(device, *, batch_size=64, width=WIDTH, depth=DEPTH, checkpoint_every=0, waste=0, lr=1e-2, extra=0, steps=99):
    model = MLP(depth, width, checkpoint_every=checkpoint_every).to(device)
    wasted = torch.zeros(waste, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    x = torch.linspace(-1, 1, batch_size * width, device=device).view(batch_size, width)
    for _ in range(steps):
        loss = (model(x) - x).square().mean() + 0 * wasted.sum()
        for _ in range(extra):
            model(x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def baseline(device, *, batch_size=64):
    yield from train(device, batch_size=batch_size, waste=2**16)


@pytest.fixture(scope="module")
def challenge():
    return Challenge(baseline, budget="160 KiB", slowdown=1.4, batch_size=64)


def answer(**changes):
    def answering(device, *, batch_size):
        yield from train(device, batch_size=batch_size, **changes)

    return answering


def broken(outcome):
    """The rules that an outcome says are broken."""
    kept = ("within the budget", "within the 1.40 allowed", "the same losses")
    return [finding.split(":")[0] for finding in outcome.findings if not any(words in finding for words in kept)]


def test_the_baseline_itself_is_over_its_budget(challenge):
    outcome = challenge.check(baseline)
    assert not outcome.passed
    assert broken(outcome) == ["Memory"]


@pytest.mark.parametrize("changes", [{}, {"checkpoint_every": 2}])
def test_an_honest_answer_passes(challenge, changes):
    outcome = challenge.check(answer(**changes))
    assert outcome.passed
    assert broken(outcome) == []


@pytest.mark.parametrize(
    ("changes", "rules"),
    [
        pytest.param({"waste": 2**15}, ["Memory"], id="over budget"),
        pytest.param({"extra": 2}, ["Work"], id="more work"),
        pytest.param({"depth": DEPTH - 1}, ["Result"], id="a shallower model"),
        pytest.param({"width": WIDTH // 2}, ["Work", "Result"], id="a narrower model"),
        pytest.param({"steps": 3}, ["Result"], id="fewer steps"),
        pytest.param({"lr": 2e-2}, ["Result"], id="another result"),
    ],
)
def test_a_cheat_is_refused(challenge, changes, rules):
    outcome = challenge.check(answer(**changes))
    assert not outcome.passed
    assert broken(outcome) == rules


def test_a_smaller_batch_than_asked_for_is_refused(challenge):
    def smaller(device, *, batch_size):
        yield from train(device, batch_size=batch_size // 2)

    assert "Result" in broken(challenge.check(smaller))


def test_losses_that_nobody_computed_are_refused(challenge):
    def copied(device, *, batch_size):
        yield from challenge.baseline.losses

    outcome = challenge.check(copied)
    assert not outcome.passed
    assert broken(outcome) == ["Work"]


def test_losses_that_are_not_given_are_refused(challenge):
    def silent(device, *, batch_size):
        for _ in train(device, batch_size=batch_size):
            yield None

    outcome = challenge.check(silent)
    assert not outcome.passed
    assert "loss of step 1 is not given" in outcome.findings[2]


def test_an_answer_that_runs_out_of_memory_is_refused(challenge):
    def exhausted(device, *, batch_size):
        yield from train(device, batch_size=batch_size, steps=1)
        raise torch.OutOfMemoryError("Tried to allocate 12.00 MiB")

    outcome = challenge.check(exhausted)
    assert not outcome.passed
    assert outcome.findings[0].startswith("Memory: out of memory")


def test_an_error_in_the_answer_is_a_finding_with_the_readers_line(challenge):
    def wrong(device, *, batch_size):
        x = torch.ones(batch_size, WIDTH, device=device)
        yield torch.nn.Linear(2 * WIDTH, WIDTH, device=device)(x).sum()

    outcome = challenge.check(wrong)
    assert not outcome.passed
    (finding,) = outcome.findings
    assert finding.startswith("Error: RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x32 and 64x32), at ")
    assert re.search(
        r", line \d+: `yield torch\.nn\.Linear\(2 \* WIDTH, WIDTH, device=device\)\(x\)\.sum\(\)`\.$", finding
    )


def test_what_is_no_answer_at_all_is_refused(challenge):
    with pytest.raises(BadValue, match="batch_size"):
        challenge.check(lambda device, *, batchsize=1: iter(()))


@pytest.mark.parametrize(
    "unfit", [lambda device: (torch.zeros(1) for _ in range(9)), lambda device: (None for _ in range(9))]
)
def test_a_baseline_that_nobody_can_match_is_refused(unfit):
    with pytest.raises(BadTrain, match="no baseline"):
        Challenge(unfit, budget="1 MiB", slowdown=1)


def test_it_states_its_rules_up_front(challenge):
    text = challenge._repr_markdown_()
    for part in ("160 KiB", format_bytes(challenge.baseline.peak_allocated), "1.40 times", "4 steps"):
        assert part in text


def test_an_outcome_reads_the_same_as_text_and_in_a_notebook(challenge):
    outcome = challenge.check(baseline)
    assert str(outcome).startswith("Not yet.\nMemory: peak ")
    assert outcome._repr_markdown_().startswith("**Not yet.**\n\n- Memory: peak ")


@pytest.mark.parametrize(
    ("tolerance", "words"), [(1e-4, "the same losses as the baseline"), (0.05, "losses within 5% of the baseline's")]
)
def test_how_near_the_losses_must_be_is_told(tolerance, words):
    challenge = Challenge(baseline, budget="160 KiB", slowdown=1.4, tolerance=tolerance, batch_size=64)
    rule = f"Result: {words} in all 4 steps."
    assert challenge._repr_markdown_().endswith(f"- {rule}")
    assert challenge.check(answer()).findings[-1] == rule


def no_more_than_four_blocks(answer, trace):
    """Model: at most four blocks.

    They are counted in the trace.
    """
    blocks = {event.module.split(".")[1] for event in trace.events if event.module.startswith("blocks.")}
    return len(blocks) <= DEPTH, f"Model: {len(blocks)} blocks."


def known(answer, trace):
    return answer.__name__ == "answering", f"Name: {answer.__name__}."


def test_further_rules_are_stated_and_judged_with_the_others():
    rules = (no_more_than_four_blocks, known)
    strict = Challenge(baseline, budget="160 KiB", slowdown=1.4, batch_size=64, rules=rules)
    assert strict._repr_markdown_().endswith("in all 4 steps.\n- Model: at most four blocks.\n- known")
    outcome = strict.check(answer())
    assert outcome.passed
    assert outcome.findings[3:] == ("Model: 4 blocks.", "Name: answering.")

    def renamed(device, *, batch_size):
        yield from train(device, batch_size=batch_size)

    outcome = strict.check(renamed)
    assert not outcome.passed
    assert outcome.findings[4] == "Name: renamed."


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # which torch.distributed.optim still has
def test_an_answer_trains_on_as_many_ranks_as_the_challenge_has():
    from notebooks.ranks import sharded

    sizes = {"depth": 2, "width": 32, "heads": 4, "context": 32}
    posed = Challenge(sharded.train_whole, budget="2 MiB", slowdown=1.01, world_size=2, sizes=sizes)
    fits = posed.check(sharded.train, batch_per_rank=2, strategy="zero-3")
    assert fits.passed, str(fits)
    assert "1.00 times the baseline's arithmetic" in str(fits)  # of both together
    assert "loss of step 1" in str(posed.check(sharded.train, batch_per_rank=1))
