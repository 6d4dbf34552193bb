"""The checks of the stand-in that need no CUDA build and no compiler; `make test-cuda` does the rest."""

import os
import shutil
import sys

import pytest

from memlab.vgpu import CARDS
from tests.standin import build
from tests.standin.__main__ import ROOT, environment, main
from tests.standin.cards import described


@pytest.mark.parametrize("card", CARDS)
def test_every_card_of_memlab_can_be_stood_in_for(card):
    name, *numbers = described(card).split(";")
    assert len(name) < 128
    assert len(numbers) == 12
    assert [int(number) for number in numbers[:4]] == [
        CARDS[card].capacity,
        CARDS[card].context,
        *divmod(CARDS[card].sm, 10),
    ]


def test_another_system_is_refused_in_a_sentence(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(build.NoStandIn, match=r"needs Linux, and this is darwin\."):
        build.built()


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "nm" else tool)
    with pytest.raises(build.NoStandIn, match="nm is not here: install gcc and binutils"):
        build.built()


def test_a_torch_without_cuda_is_said_and_nothing_is_run(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(build, "check_tools", lambda: None)
    monkeypatch.setattr(build, "TORCH", tmp_path)
    assert main(["T4", "script.py"]) == 2
    assert "has no CUDA build of torch: run make test-cuda" in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "words"), [(["K80", "x.py"], "'K80' is not a card"), (["T4"], "give a card")])
def test_bad_arguments_are_one_sentence(arguments, words, capsys):
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


def test_the_process_finds_memlab_and_the_card(monkeypatch, tmp_path):
    for name in ("libcudart.so.13", "libcublasLt.so.13", "libnvrtc.so.13"):
        (tmp_path / name).touch()
    (tmp_path / "preload").write_text("libcudart.so.13")
    monkeypatch.setattr(build, "built", lambda: tmp_path)
    told = environment("t4:2", {"PYTHONPATH": "mine", "STANDIN_CUDNN": "other"})
    assert told["PYTHONPATH"].split(os.pathsep) == [str(ROOT), "mine"]
    assert told["LD_PRELOAD"] == str(tmp_path / "libcudart.so.13")
    assert told["STANDIN_CARD"].startswith("Tesla T4;")
    assert (told["STANDIN_COUNT"], told["STANDIN_CUDNN"]) == ("2", "other")


def test_a_symbol_goes_to_its_library():
    libraries = {"libcudart.so.13": {}, "libcuda.so.1": {}, "libcublasLt.so.13": {}}
    assert build.library_of("cudaMalloc", "libcudart.so.13", libraries) == "libcudart.so.13"
    assert build.library_of("cuMemCreate", "", libraries) == "libcuda.so.1"
    assert build.library_of("cublasLtMatmul", "", libraries) == "libcublasLt.so.13"
    assert build.library_of("memcpy", "GLIBC_2.14", libraries) is None
