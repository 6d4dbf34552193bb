import dataclasses
import re
import subprocess
import sys

import pytest

from memlab import cli
from memlab.cli import doctor
from memlab.cli.doctor import Facts, Gpu, findings
from memlab.units import GIB

T4 = Gpu(name="Tesla T4", capability=(7, 5), memory=15 * GIB)
H100 = Gpu(name="NVIDIA H100", capability=(9, 0), memory=80 * GIB)
P100 = Gpu(name="Tesla P100", capability=(6, 0), memory=16 * GIB)

# A machine on which everything works.
GOOD = Facts(
    python="3.12.1",
    versions={
        "memlab": "0.1.0",
        "torch": "2.13.0+cu126",
        "numpy": "2.4.6",
        "matplotlib": "3.11.2",
        "ipywidgets": "8.1.9",
        "jupyterlab": "4.6.6",
    },
    requirements=("torch>=2.11", "ipywidgets>=7.7", 'jupyterlab<5,>=4; extra == "lab"', 'pytest>=8.2; extra == "test"'),
    cuda_build=True,
    nvidia_driver=True,
    gpus=(H100,),
    cpu_threads=16,
    ram=64 * GIB,
    compiler="g++",
    triton=True,
    backends=("gloo", "nccl"),
)


def but(**changes) -> Facts:
    return dataclasses.replace(GOOD, **changes)


def versions(**changes) -> Facts:
    return but(versions={**GOOD.versions, **changes})


def test_a_machine_on_which_everything_works_has_no_problem():
    report = {finding.subject: finding for finding in findings(GOOD)}
    assert not any(finding.problem for finding in report.values())
    assert report["CUDA 0"].value == "NVIDIA H100, capability 9.0, 80.0 GiB"
    assert report["CPU"].value == "16 threads, RAM 64.0 GiB"
    assert report["distributed"].value == "gloo, nccl"
    assert report["bf16"].value == "yes"
    assert report["virtual GPU"].value == "yes: memlab.predict works"


@pytest.mark.parametrize(
    ("facts", "subject", "cause", "next_step"),
    [
        (but(gpus=(), nvidia_driver=False), "CUDA", "no NVIDIA GPU", "use a machine with one"),
        (but(gpus=(), cuda_build=False), "CUDA", "built without CUDA", "install a CUDA build"),
        (but(gpus=()), "CUDA", "cannot use the GPU", "nvidia-smi"),
        (but(no_virtual_gpu="the slot is taken; predict elsewhere"), "virtual GPU", "slot is taken", "elsewhere"),
        (but(gpus=(T4,)), "bf16", "Tesla T4 (capability 7.5)", 'precision="fp16"'),
        (but(compiler=None), "torch.compile", "no C++ compiler", "install g++"),
        (but(python_headers=False), "torch.compile", "Python.h is missing", "install python3-dev"),
        (but(triton=False), "torch.compile", "Triton is not installed", "pip install triton"),
        (but(gpus=(P100,)), "torch.compile", "capability 7.0", "run without torch.compile"),
        (but(backends=("gloo",)), "distributed", "no nccl", "several GPUs need PyTorch for CUDA"),
        (but(backends=()), "distributed", "without torch.distributed", "install one"),
        (versions(ipywidgets="7.6.5"), "ipywidgets", "7.6.5", 'pip install "ipywidgets>=7.7"'),
        (versions(jupyterlab="5.0.0"), "jupyterlab", "5.0.0", 'pip install "jupyterlab<5,>=4"'),
        (versions(jupyterlab=None), "jupyterlab", "memlab lab needs it", 'pip install "jupyterlab<5,>=4"'),
        (versions(matplotlib=None), "matplotlib", "not installed", 'pip install "matplotlib"'),
        (versions(memlab=None), "memlab", "not installed", "pip install -e ."),
    ],
)
def test_each_problem_has_its_cause_and_the_next_step(facts, subject, cause, next_step):
    found = {finding.subject: finding for finding in findings(facts)}[subject]
    assert cause in found.problem
    assert next_step in found.problem
    assert not found.fatal


def test_a_machine_without_a_gpu_is_told_what_the_numbers_are():
    (cuda,) = (finding for finding in findings(but(gpus=())) if finding.subject == "CUDA")
    assert "bytes of live tensor storages" in cuda.problem


def test_a_machine_without_a_gpu_needs_no_triton():
    (compiles,) = (f for f in findings(but(gpus=(), triton=False)) if f.subject == "torch.compile")
    assert not compiles.problem


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        (versions(torch=None), "not installed"),
        (versions(torch="2.10.0"), "2.10.0"),
        (but(torch_error="libcudart.so.12: cannot open"), "libcudart.so.12"),
    ],
)
def test_without_a_torch_that_works_nothing_works(facts, cause, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "look", lambda: facts)
    assert cli.main(["doctor"]) == 1
    assert f"- torch: {cause}" in capsys.readouterr().out.replace("does not import (", "")


def test_the_printed_report(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "look", lambda: but(compiler=None))
    assert cli.main(["doctor"]) == 0
    above, below = capsys.readouterr().out.split("Will not work here:")
    assert "torch          2.13.0+cu126\n" in above
    assert below.strip().startswith("- torch.compile: no C++ compiler found;")
    assert len(below.strip().splitlines()) == 1


def test_when_all_is_well_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "look", lambda: GOOD)
    assert cli.main(["doctor"]) == 0
    assert "Everything works here." in capsys.readouterr().out


def test_this_very_machine(capsys):
    assert cli.main(["doctor"]) == 0
    text = capsys.readouterr().out
    for subject in ("Python", "torch", "ipywidgets", "CPU", "CUDA", "bf16", "torch.compile", "distributed"):
        assert subject in text


def test_a_torch_that_lacks_a_private_name_is_told_in_words():
    code = (
        "import torch; del torch._C._acc.PrivateUse1Hooks\n"
        "from memlab.cli import main; raise SystemExit(main(['doctor']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "virtual GPU    no\n" in done.stdout
    assert re.search(r"- virtual GPU: torch .* lacks what the virtual GPU needs .* measure still works", done.stdout)
