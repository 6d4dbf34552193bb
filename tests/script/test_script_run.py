"""Runs of scripts in this process: their steps, and how they end."""

import sys
from textwrap import dedent

import pytest
import torch

from memlab.devices import Cpu
from memlab.errors import BadTrain
from memlab.run import predict
from memlab.script.command import Command
from memlab.script.script_run import WITHOUT_OPTIMIZER, ScriptRun
from memlab.units import format_bytes
from memlab.vgpu.gpu import VirtualGpu

HEAD = """
    import argparse, pickle, sys
    import torch
    from torch import nn

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(3)]).to(device)
    optimizer = torch.optim.AdamW(model.parameters())

    def step(size=8):
        x = torch.randn(size, 64, device=device)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
"""
PLAIN = """
    size = int(sys.argv[1]) if sys.argv[1:] else 8
    for _ in range(100):
        loss = model(torch.randn(size, 64, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.fixture
def run(run_script):
    """``run(text, *arguments)``: behind that text stands a model, and ``step()``."""
    return lambda text, *arguments, **options: run_script(dedent(HEAD) + dedent(text), *arguments, **options)


def train(device, *, size=8):
    from torch import nn, optim, randn

    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(3)]).to(device)
    optimizer = optim.AdamW(model.parameters())
    while True:
        loss = model(randn(size, 64, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def test_a_script_takes_what_the_same_loop_takes(run):
    trace = run(PLAIN, 4096).complete()
    loop = predict(train, size=4096)
    assert [step.peak_allocated for step in trace.steps] == [step.peak_allocated for step in loop.steps]
    assert trace.by_category == loop.by_category
    assert trace.flops == loop.flops
    assert "held over" not in trace.start  # nor is the loss, which the script keeps until the next one
    assert trace.least_seconds == loop.least_seconds > 0
    assert trace.settings == {"arguments": "4096"}
    assert (trace.source, trace.device) == ("predicted", "T4")


def test_measured_it_has_losses_and_seconds(run):
    trace = run(PLAIN, device=Cpu(), steps=5).complete()
    assert len(trace.losses) == 5
    assert all(loss > 0 for loss in trace.losses)
    assert trace.seconds_per_step > 0


def test_it_is_main_with_arguments_and_a_file_of_its_own(run):
    text = """
        assert __name__ == "__main__" and sys.argv[1:] == ["--size", "3"] and sys.argv[0] == __file__
        class Mine: pass
        assert isinstance(pickle.loads(pickle.dumps(Mine())), Mine)
        step()
    """
    assert len(run(text, "--size", 3).complete().steps) == 1


def test_it_imports_what_lies_beside_it(run, tmp_path):
    (tmp_path / "beside_script.py").write_text("SIZE = 5")
    assert len(run("from beside_script import SIZE\nstep(SIZE)").complete().steps) == 1


def test_it_may_end_before_its_steps_are_made(run):
    assert len(run("step(); step(); sys.exit(1)").complete().steps) == 2


@pytest.mark.parametrize("words", ["except Exception", "except", "except BaseException", "finally"])
def test_nothing_in_it_catches_its_end(words, run):
    text = f"""
        count = 0
        try:
            for _ in range(1000):
                count += 1
                step()
        {words}:
            print("cleaning up")
    """
    trace = run(text).complete()
    assert len(trace.steps) == 3
    assert sys.modules["__main__"].count == 3


def test_one_that_goes_on_is_cut_off_at_each_operator(run):
    text = """
        tried = 0
        while tried < 1000:
            tried += 1
            try:
                step()
            except BaseException:
                pass
    """
    assert len(run(text).complete().steps) == 3
    assert sys.modules["__main__"].tried == 1000


def test_out_of_memory_is_a_result(run):
    trace = run("step(); step(10**8)").complete()
    assert trace.oom.message.startswith("CUDA out of memory. Tried to allocate 23.84 GiB")
    assert len(trace.steps) == 2


def test_out_of_memory_is_a_result_also_where_the_script_catches_it(run):
    text = """
        try:
            step(10**8)
        except Exception as error:
            print("caught", error)
    """
    trace = run(text).complete()
    assert trace.oom.message.startswith("CUDA out of memory. Tried to allocate 23.84 GiB")


def test_one_that_tries_less_goes_on_after_out_of_memory(run):
    text = """
        size = 10**8
        while size > 8:
            try:
                step(size)
            except torch.cuda.OutOfMemoryError:
                size //= 10**4
    """
    trace = run(text).complete()
    assert trace.oom is None
    assert len(trace.steps) == 3


def test_a_budget(run):
    trace = run(PLAIN, 100_000, device=Cpu(), budget="10 MiB").complete()
    assert trace.oom.limit == 10 * 2**20


def test_one_that_makes_no_step_is_refused(run):
    with pytest.raises(BadTrain, match=r"script\.py made no step"):
        run("print('done')").complete()


def test_what_it_raises_comes_out(run):
    with pytest.raises(ZeroDivisionError):
        run("step(); 1 / 0").complete()


# PyTorch's own: importing its compiler meets deprecated names.
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")
def test_scripted_code_is_predicted_as_it_is_written(run):
    text = """
        @torch.compile(dynamic=True)
        def double(x):
            return x * 2
        scripted = torch.jit.script(double)
        scripted(torch.ones(2, device=device))
        step()
    """
    (note,) = run(text).complete().notes
    assert note.startswith("torch.jit.script at")
    assert "the code is predicted as it is written, not compiled" in note


def test_a_data_loader_has_no_workers(run):
    text = """
        from torch.utils.data import DataLoader
        loader = DataLoader(torch.randn(8, 64), batch_size=4, num_workers=2, persistent_workers=True, prefetch_factor=4)
        assert loader.num_workers == 0
        for batch in loader:
            step(len(batch))
    """
    assert len(run(text).complete().steps) == 2


def test_what_is_saved_is_there_to_be_copied(run, tmp_path):
    text = f"""
        import os, shutil
        step()
        torch.save(model.state_dict(), {str(tmp_path / "last.pt")!r})
        shutil.copyfile({str(tmp_path / "last.pt")!r}, {str(tmp_path / "best.pt")!r})
        model.load_state_dict(torch.load({str(tmp_path / "best.pt")!r}))
        step()
    """
    assert len(run(text).complete().steps) == 2


def test_a_buffers_bytes_are_a_file(run, tmp_path):
    text = f"""
        import io
        from pathlib import Path
        step()
        buffer = io.BytesIO()
        torch.save({{"model": model.state_dict(), "epoch": 3}}, buffer)
        Path({str(tmp_path / "last.pt")!r}).write_bytes(buffer.getvalue())
        saved = torch.load({str(tmp_path / "last.pt")!r})
        assert saved["epoch"] == 3
        model.load_state_dict(saved["model"])
        step()
    """
    assert len(run(text).complete().steps) == 2


def test_arrays_are_written_and_read_back(run, tmp_path):
    text = f"""
        import numpy as np
        step()
        with open({str(tmp_path / "labels.cache")!r}, "wb") as file:
            np.save(file, {{"labels": [1, 2]}})
        assert np.load({str(tmp_path / "labels.cache")!r}, allow_pickle=True).item() == {{"labels": [1, 2]}}
        torch.arange(3).numpy().tofile({str(tmp_path / "numbers")!r})
        assert np.fromfile({str(tmp_path / "numbers")!r}, dtype=np.int64).tolist() == [0, 1, 2]
        step()
    """
    trace = run(text).complete()
    assert len(trace.steps) == 2
    assert not any("wrote nothing" in note for note in trace.notes)


def test_a_metric_that_looks_at_its_numbers(run):
    text = """
        library = {"__name__": "torchmetrics.functional"}
        exec("import torch\\ndef check(t): return [r.tolist() for r in torch.unique(t, return_inverse=True)]", library)
        step()
        labels = torch.randint(10, (6,), device=device)
        assert library["check"](labels) == [[0], [0] * 6]
        step()
    """
    trace = run(text).complete()
    assert len(trace.steps) == 2
    assert trace.guesses


RANKS = """
    import os
    import torch.distributed as dist
    import torch.multiprocessing as mp

    def work(rank, count):
        dist.init_process_group("nccl", rank=rank, world_size=count)
        assert (rank, dist.get_world_size(), os.environ["LOCAL_RANK"]) == (1, 4, "1")
        step()
        dist.destroy_process_group()

    if __name__ == "__main__":
        mp.spawn(work, args=(4,), nprocs=4)
"""


def test_of_the_processes_that_it_starts_one_is_predicted(run):
    trace = run(RANKS, device=VirtualGpu("T4", world_size=4, global_rank=1)).complete()
    assert (trace.rank, trace.world_size) == (1, 4)


def test_processes_that_train_are_refused_where_nobody_said_how_many(run):
    with pytest.raises(PermissionError, match=r"starts 4 processes that train, at script\.py:\d+: .* \(--world-size\)"):
        run(RANKS).complete()


ONE_RANK = """
    import os
    import torch.distributed as dist

    os.environ.setdefault("MASTER_ADDR", "localhost")
    dist.init_process_group("nccl", world_size=1, rank=0)
    assert (dist.get_rank(), dist.get_world_size(), os.environ["LOCAL_RANK"]) == (0, 1, "0")
    model = nn.parallel.DistributedDataParallel(model, device_ids=[0])
    step()
    dist.destroy_process_group()
    step()
"""


def test_a_group_of_one_rank_is_made_by_the_script_itself(run):
    trace = run(ONE_RANK).complete()
    assert len(trace.steps) == 2
    assert trace.notes == ()
    assert not torch.distributed.is_initialized()


def test_one_of_several_ranks_is_refused_where_nobody_said_how_many(run):
    with pytest.raises(PermissionError, match=r"one of 4 ranks, at script\.py:\d+: .* \(--world-size 4\)"):
        run(ONE_RANK.replace("world_size=1", "world_size=4")).complete()


def test_a_module_is_run_as_python_runs_it(tmp_path, own_main, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "as_module").mkdir()
    (tmp_path / "as_module" / "__init__.py").write_text("")
    (tmp_path / "as_module" / "sizes.py").write_text("SIZE = 5")
    head = "from .sizes import SIZE" + dedent(HEAD) + "assert (__name__, sys.path[0]) == ('__main__', sys.argv[1])\n"
    for name in ("train", "__main__"):
        (tmp_path / "as_module" / f"{name}.py").write_text(head + "step(SIZE)")
    for name in ("as_module.train", "as_module"):
        command = Command.of_module(name, tmp_path)
        assert len(ScriptRun(command, VirtualGpu("T4")).complete().steps) == 1


def test_a_script_that_updates_its_weights_itself(run):
    text = """
        del optimizer
        while True:
            model(torch.randn(8, 64, device=device)).sum().backward()
            for parameter in model.parameters():
                parameter.data.add_(parameter.grad, alpha=-0.1)
                parameter.grad = None
    """
    trace = run(text).complete()
    assert len(trace.steps) == 3
    assert trace.notes == (WITHOUT_OPTIMIZER,)


def test_one_that_trains_on_the_cpu_as_it_was_started(run_script):
    text = dedent(HEAD).replace("torch.cuda.is_available()", "args.accel") + "for _ in range(3): step()\n"
    parser = (
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--lr', type=float)\n"
        "parser.add_argument('--accel', action='store_true')\n"
        "args = parser.parse_args()\n"
    )
    said = (
        "The script had nothing on the card: it trains on the CPU as it was started; of its options, --accel may "
        "change that."
    )
    assert said in run_script(parser + text).complete().notes
    assert said not in run_script(parser + text, "--accel").complete().notes


def test_where_it_is(run):
    text = """
        for index in range(8):
            model(torch.randn(8, 64, device=device)).sum().backward()
            if index % 4 == 3:
                optimizer.step()
            sys.told.append(sys.asked())
    """
    script = run(text)
    sys.told, sys.asked = [], lambda: script.progress
    script.complete()
    told, _ = sys.told, vars(sys).pop("asked")
    assert told[:3] == [f"step 1 of 3, {number} done" for number in ("1 backward", "2 backwards", "3 backwards")]
    assert told[3:7] == [f"step 2 of 3, {number} of 4 backwards done" for number in (0, 1, 2, 3)]


def test_what_is_set_up_is_told_apart_from_the_steps(run):
    encoder = """
        encoder = nn.Linear(4096, 4096).to(device)
        with torch.no_grad():
            encoder(torch.ones(8, 4096, device=device))
        del encoder
    """
    trace = run(dedent(encoder) + "step(); step(); step()").complete()
    highest = format_bytes(max(step.peak_allocated for step in trace.steps[1:]))
    assert trace.peak_allocated > max(step.peak_allocated for step in trace.steps[1:])
    assert trace.notes[-1].endswith(f"before it; the highest of the others takes {highest}.")
    assert run("step(); step(); step()").complete().notes == ()
