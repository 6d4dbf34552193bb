"""Scripts that evaluate and save behind the steps that are asked for."""

import pytest

from memlab.errors import BadValue, ScriptFailed
from memlab.script.edits import Edits
from memlab.script.plan import NO_GRAD
from memlab.script.until import Until

HEAD = """
    import sys
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Linear(64, 64).to(device)
    optimizer = torch.optim.SGD(model.parameters())
    data = TensorDataset(torch.ones(4000, 64))
    train, test = DataLoader(data, batch_size=8), DataLoader(data, batch_size=1000)

    @torch.no_grad()
    def evaluate():
        model.eval()
        kept = [model(x.to(device)) for x, in test]
        model.train()

    def epoch():
        for x, in train:
            model(x.to(device)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
"""


def body(text):
    """A script: its head, and these lines behind it."""
    return HEAD + "\n".join(f"    {line}" for line in text.strip().splitlines()) + "\n"


def peaks(trace):
    return [step.peak_allocated for step in trace.steps]


def test_the_epoch_is_cut_short_and_the_evaluation_is_not(run_script):
    plain = peaks(run_script(body("epoch()")).complete())
    trace = run_script(body("while True:\n    epoch()\n    evaluate()"), until="evaluation").complete()
    *before, last = peaks(trace)
    assert before == plain
    of_batch = 1000 * 64 * 4
    assert last - plain[-1] > 4 * of_batch  # four batches' outputs are kept
    (note,) = trace.notes
    assert note.startswith(
        "The script evaluates its model after step 3. From there to the end of the next step the peak"
    )


def test_it_may_come_at_the_end_of_the_script(run_script):
    trace = run_script(body("epoch()\nevaluate()"), until="evaluation", steps=2).complete()
    assert len(trace.steps) == 3
    assert peaks(trace)[2] > peaks(trace)[1]


def test_an_evaluation_before_the_first_step_is_not_waited_for(run_script):
    run = run_script(body("evaluate()\nepoch()"), until="evaluation")
    with pytest.raises(
        ScriptFailed, match=r"script.py ended after 3 steps and has not once called its model in eval mo"
    ):
        run.complete()


def test_a_frozen_model_in_eval_mode_is_no_evaluation(run_script):
    encoder = "encoder = nn.Linear(64, 64).to(device).eval().requires_grad_(False)\n"
    loop = "for x, in train:\n    with torch.no_grad():\n        x = encoder(x.to(device))\n"
    step = "    model(x).sum().backward()\n    optimizer.step()\n"
    trace = run_script(body(f"{encoder}{loop}{step}evaluate()"), until="evaluation").complete()
    assert len(trace.steps) == 4


@pytest.mark.parametrize(
    "save",
    ["torch.save(state, 'x.pt')", "import safetensors.torch\nsafetensors.torch.save_file(state, 'x.safetensors')"],
)
def test_a_state_dict_that_is_gathered_on_the_card_counts(run_script, save, monkeypatch, tmp_path):
    if "safetensors" in save:
        pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    state = "state = {name: value.repeat(100, *[1] * (value.dim() - 1)) for name, value in model.state_dict().items()}"
    *before, last = peaks(run_script(body(f"epoch()\n{state}\n{save}"), until="saved").complete())
    assert last - max(before) > 90 * 64 * 65 * 4


def test_memory_that_runs_out_there_is_told(run_script):
    large = "model.eval()\nwith torch.no_grad():\n    model(torch.ones(100_000, 64, device=device))"
    trace = run_script(body(f"epoch()\n{large}"), until="evaluation", budget="24 MiB").complete()
    assert len(trace.steps) == 4
    assert trace.oom.op == "aten.ones"


def test_unknown_words_are_refused():
    with pytest.raises(BadValue, match="until='checkpoint' is not known: give one of evaluation, saved"):
        Until("checkpoint")


WITH_GRADIENTS = """
def evaluate_badly():
    model.eval()
    kept = [model(x.to(device)) for x, in test]
    model.train()

while True:
    epoch()
    evaluate_badly()
"""


def test_an_evaluation_with_gradients_is_told_with_its_line(run_script):
    run = run_script(body(WITH_GRADIENTS), until="evaluation")
    trace = run.complete()
    assert run.fault in trace.notes
    place = body(WITH_GRADIENTS).splitlines().index("        kept = [model(x.to(device)) for x, in test]", 20)
    chain = f"script.py:{place + 1} in evaluate_badly, called at script.py:{place + 6},"
    assert run.fault.startswith(f"At {chain} the model is called in eval mode with gradients on, so ")
    assert run.fault.endswith("torch.no_grad() is missing in what evaluates.")
    assert [note.partition(" after")[0] for note in trace.notes[:1]] == [run.fault]


def test_no_grad_around_it_is_tried_as_if_it_was_written(run_script):
    text = body(WITH_GRADIENTS)
    written = text.replace("def evaluate_badly", "@torch.no_grad()\n    def evaluate_badly")
    assert written != text
    run = run_script(text, until="evaluation")
    with Edits([NO_GRAD]).applied():
        trace = run.complete()
    assert not run.fault
    assert peaks(trace) == peaks(run_script(written, until="evaluation").complete())


def test_a_model_in_eval_mode_that_is_trained_is_no_evaluation(run_script):
    run = run_script(body("model.eval()\nepoch()\nevaluate()"), until="evaluation")
    run.complete()
    assert run.fault == ""


@pytest.mark.parametrize("evaluation", [True, False])
def test_memory_that_runs_out_in_an_evaluation_is_told_so(run_script, evaluation):
    large = "x = torch.zeros(200_000, 64, device=device)\n"
    call = "model.eval()\nwith torch.no_grad():\n    model(x)\nmodel.train()\n" if evaluation else "model(x)\n"
    run = run_script(body(f"epoch()\n{large}{call}epoch()"), until="evaluation", budget="100 MiB", steps=1)
    trace = run.complete()
    assert trace.oom
    assert run.has_failed_evaluating == evaluation
    assert any(note.startswith("That is in an evaluation") for note in trace.notes) == evaluation
    assert not any("From there to the end" in note for note in trace.notes)


def test_the_time_of_a_step_is_that_of_the_training(run_script):
    plain = run_script(body("epoch()")).complete()
    trace = run_script(body("while True:\n    epoch()\n    evaluate()"), until="evaluation").complete()
    assert (trace.least_seconds, trace.likely_seconds) == (plain.least_seconds, plain.likely_seconds)


def test_a_part_that_is_trained_in_eval_mode_is_no_evaluation_without_no_grad(run_script):
    frozen = "model = nn.Sequential(nn.BatchNorm1d(64).eval(), nn.Linear(64, 64)).to(device)\n"
    optimizer = "optimizer = torch.optim.SGD(model.parameters())\n"
    run = run_script(body(f"{frozen}{optimizer}epoch()\nevaluate()"), until="evaluation")
    trace = run.complete()
    assert run.fault == ""
    assert trace.notes[0].startswith("The script evaluates its model after step 3.")


def test_memory_that_runs_out_in_a_checkpoint_is_not_said_to_in_an_evaluation(run_script):
    from_checkpoint = "from torch.utils.checkpoint import checkpoint\n"
    blocks = "model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 4096)).to(device)\n"
    forward = "own = model.forward\nmodel.forward = lambda x: checkpoint(own, x, use_reentrant=True)\n"
    call = "model(torch.zeros(20_000, 64, device=device, requires_grad=True))\n"
    run = run_script(body(f"{from_checkpoint}{blocks}{forward}{call}"), budget="100 MiB")
    assert run.complete().oom
    assert not run.has_failed_evaluating
