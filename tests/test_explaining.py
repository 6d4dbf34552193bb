"""Out-of-memory messages from people's logs, each with its source, explained."""

import io
from dataclasses import replace

import pytest

from memlab import cli, explain
from memlab.errors import BadValue
from memlab.oom import TRY_EXPANDABLE, cuda_message
from memlab.units import GIB, MIB

# What was said, where it stands (an issue or pull request on GitHub), and why memory ran out.
SAID = [
    # PyTorch 1.0 to 1.3: "cached" is what is held and free
    ("RuntimeError: CUDA out of memory. Tried to allocate 1.72 GiB (GPU 0; 10.76 GiB total capacity; "
     "4.01 GiB already allocated; 356.00 MiB free; 5.54 GiB cached)", "pytorch/pytorch#31252", "fragmentation"),
    ("RuntimeError: CUDA out of memory. Tried to allocate 50.00 MiB (GPU 0; 6.00 GiB total capacity; "
     "693.78 MiB already allocated; 3.91 GiB free; 18.22 MiB cached)", "pytorch/pytorch#40002", "refused"),
    ("RuntimeError: CUDA out of memory. Tried to allocate 1024.00 KiB (GPU 0; 11.17 GiB total capacity; "
     "10.90 GiB already allocated; 576.00 KiB free; 30.96 MiB cached)", "shllln/GenerativeGraph#5", "full"),
    # 1.4 to 2.0: "reserved in total" is all that is held
    ("RuntimeError: CUDA out of memory. Tried to allocate 60.00 MiB (GPU 0; 11.17 GiB total capacity; "
     "505.96 MiB already allocated; 12.50 MiB free; 530.00 MiB reserved in total by PyTorch)",
     "pytorch/pytorch#40863", "other processes"),
    ("RuntimeError: CUDA out of memory. Tried to allocate 16.00 GiB (GPU 0; 47.54 GiB total capacity; 23.76 GiB "
     "already allocated; 6.30 GiB free; 39.59 GiB reserved in total by PyTorch) If reserved memory is >> allocated "
     "memory try setting max_split_size_mb to avoid fragmentation.", "guoyww/AnimateDiff#312", "fragmentation"),
    ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 10.73 GiB (GPU 0; 8.00 GiB total capacity; "
     "17.20 GiB already allocated; 0 bytes free; 19.15 GiB reserved in total by PyTorch)",
     "YingqianWang/iPASSR#9", "larger than the card"),
    ("RuntimeError: CUDA out of memory. Tried to allocate 74.00 MiB (GPU 0; 11.91 GiB total capacity; 10.79 GiB "
     "already allocated; 12.94 MiB free; 11.21 GiB reserved in total by PyTorch)", "RistoranteRist/FastFlow#4", "full"),
    # 2.1 and 2.2, with PyTorch's "capacty"; in a container it does not know its own number
    ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacty of "
     "23.65 GiB of which 1.66 GiB is free. Including non-PyTorch memory, this process has 20.81 GiB memory in use. Of "
     "the allocated memory 12.09 GiB is allocated by PyTorch, and 4.84 GiB is reserved by PyTorch but unallocated.",
     "kerrj/lerf#73", "fragmentation"),
    ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 496.00 MiB. GPU 0 has a total capacty of "
     "14.75 GiB of which 235.06 MiB is free. Process 20398 has 14.52 GiB memory in use. Of the allocated memory "
     "14.06 GiB is allocated by PyTorch, and 330.42 MiB is reserved by PyTorch but unallocated.",
     "FoundationVision/GenerateU#10", "full"),
    # 2.3 and later
    ("[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 572.00 MiB. GPU 0 has a total capacity of "
     "39.49 GiB of which 321.31 MiB is free. Process 3721648 has 414.00 MiB memory in use. Including non-PyTorch "
     "memory, this process has 37.46 GiB memory in use. Process 1374765 has 414.00 MiB memory in use. Process 1374763 "
     "has 414.00 MiB memory in use. Process 1374764 has 414.00 MiB memory in use. Of the allocated memory 36.04 GiB is "
     "allocated by PyTorch, and 321.37 MiB is reserved by PyTorch but unallocated.",
     "awslabs/keys_values#92", "other processes"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 226.00 MiB. GPU 0 has a total capacity of 15.70 GiB"
     " of which 210.38 MiB is free. Including non-PyTorch memory, this process has 15.48 GiB memory in use. Of the "
     "allocated memory 14.81 GiB is allocated by PyTorch, and 336.73 MiB is reserved by PyTorch but unallocated.",
     "qingze-bai/VSmTrans#3", "full"),
    ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 255.98 GiB "
     "of which 244.65 GiB is free. 1.05 GiB allowed; Of the allocated memory 1017.01 MiB is allocated by PyTorch, with "
     "17.00 MiB allocated in private pools (e.g., HIP Graphs), and 54.99 MiB is reserved by PyTorch but unallocated.",
     "ROCm/TheRock#2118", "limit"),
    ("RuntimeError: MPS backend out of memory (MPS allocated: 8.89 GB, other allocations: 172.98 MB, max allowed: "
     "9.07 GB). Tried to allocate 6.25 MB on private pool.", "lllyasviel/Fooocus#1139", "full"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 14.56 GiB"
     " of which 101.81 MiB is free. Including non-PyTorch memory, this process has 14.46 GiB memory in use. Of the "
     "allocated memory 2.95 GiB is allocated by PyTorch, and 110.00 MiB is reserved by PyTorch but unallocated.",
     "made up: JAX beside PyTorch, with the three quarters of the card that it takes", "this process"),
    # Of a DataLoader's workers
    ("RuntimeError: DataLoader worker (pid 19597) is killed by signal: Killed.",
     "hezhangsprinter/DCPDN#12", "worker"),
    ("RuntimeError: DataLoader worker (pid 46794) is killed by signal: Bus error. It is possible that dataloader's "
     "workers are out of shared memory. Please try to raise your shared memory limit.",
     "hkchengrex/STCN#132", "shared memory"),
    # Without figures, and of the host
    ("RuntimeError: cuda runtime error (2) : out of memory at /Users/x/pytorch/torch/lib/THC/generic/THCStorage.cu:66",
     "pytorch/pytorch#1829", "unknown"),
    ("RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you "
     "tried to allocate 9663676416 bytes. Error code 12 (Cannot allocate memory)", "PyTorch's own words", "host"),
    ("OSError: [Errno 12] Cannot allocate memory", "Python's own words", "host"),
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=4311902.0. Some of the step tasks have been OOM Killed.\n"
     "srun: error: gpu-a-14: task 0: Out Of Memory", "SLURM's own words", "killed"),
    ("Out of memory: Killed process 21133 (python) total-vm:98211224kB, anon-rss:62211340kB", "Linux's own words",
     "killed"),
    ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: exitcode: -9 (pid: 4122) Signal 9 (SIGKILL)",
     "torchrun's own words", "killed"),
    ("RuntimeError: Unable to find a valid cuDNN algorithm to run convolution", "PyTorch's own words, of cuDNN",
     "library"),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
     "PyTorch's own words, of cuBLAS", "library"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "source", "reason"), SAID, ids=[source for _, source, _ in SAID])
def test_why_memory_ran_out(text, source, reason):
    found = explain(text)
    assert found.reason == reason
    assert len(found.advice) == 3
    assert str(found).count("\n") == 3


def test_segments_are_told_to_expand_where_they_can():
    for text, _, reason in SAID:
        if reason == "fragmentation":
            is_old = "already allocated" in text
            assert (
                explain(text).advice[0].startswith("Install PyTorch 2.1" if is_old else "Set PYTORCH_CUDA_ALLOC_CONF")
            )


def test_each_reason_is_in_somebodys_log():
    from memlab.explaining import _ADVICE, _REASONS

    assert {reason for *_, reason in SAID} == set(_REASONS) == set(_ADVICE)


def test_the_figures_are_bytes():
    old, new = explain(SAID[0][0]), explain(SAID[9][0])
    assert (old.asked, old.free, old.unallocated) == (round(1.72 * GIB), 356 * MIB, round(5.54 * GIB))
    assert explain(SAID[3][0]).unallocated == round(530 * MIB) - round(505.96 * MIB)
    assert (new.capacity, new.allocated) == (round(39.49 * GIB), round(36.04 * GIB))
    assert new.others == new.capacity - new.free - new.allocated - new.unallocated
    assert explain(SAID[12][0]).asked == round(6.25 * MIB)


def test_the_paragraph_says_them():
    assert explain(SAID[7][0]).paragraph == (
        "PyTorch asked for 3.00 GiB. Of 23.7 GiB on the card, 1.66 GiB was free, tensors had 12.1 GiB, PyTorch held "
        "4.84 GiB between them, 5.06 GiB was CUDA's own or other programs', so there are enough bytes, but not in one "
        "piece: the memory is fragmented."
    )


def test_what_the_process_has_outside_of_pytorch_is_told_from_what_others_have():
    text = next(text for text, _, reason in SAID if reason == "this process")
    assert "11.4 GiB was this process's outside of PyTorch, so this process itself holds the rest" in str(explain(text))
    # As much as CUDA's libraries mostly take.
    many = text.replace("2.95 GiB is allocated", "12.5 GiB is allocated")
    assert explain(many).reason == "full"
    another = "Process 7 has 11.30 GiB memory in use. This process has 3.16 GiB"
    lent = text.replace("this process has 14.46 GiB", another)
    assert explain(lent).reason == "other processes"


@pytest.mark.parametrize(("asked", "is_enough"), [(512, True), (1024, False)])
def test_crumbs_that_would_be_enough_together_do_not_make_a_full_card_fragmented(asked, is_enough):
    said = explain(
        f"Tried to allocate {asked}.00 MiB. GPU 0 has a total capacity of 14.56 GiB of which 454.44 MiB is free. "
        "Of the allocated memory 13.57 GiB is allocated by PyTorch, and 440.00 MiB is reserved by PyTorch "
        "but unallocated."
    )
    assert said.reason == "full"
    assert ("in small pieces between them" in said.paragraph) is is_enough


def test_a_message_is_found_in_a_log_however_it_is_broken():
    text = SAID[7][0].replace(" of ", "\n of\t")
    log = f"Epoch 1: 100 it/s\nTraceback (most recent call last):\n  File ...\n{text}\n\nKilling the others"
    assert explain(log) == explain(SAID[7][0])


def test_of_several_messages_the_last_is_explained_and_the_others_are_counted():
    caught, fatal = SAID[10][0], SAID[7][0].replace("GPU 0", "GPU 3")
    found = explain(f"{caught}\nretrying with batch size 4\nstep 4000\n{fatal}\n{fatal}")
    assert replace(found, messages=1, gpu=0) == explain(SAID[7][0])
    assert found.paragraph.endswith("That was on GPU 3, the last of 2 different messages in the text.")


TRACEBACK = """Traceback (most recent call last):
  File "/home/me/train.py", line 188, in <module>
    trainer.train()
  File "/usr/lib/python3.10/dist-packages/transformers/trainer.py", line 1916, in _inner_training_loop
    self.optimizer.step()
  File "/usr/lib/python3.10/dist-packages/torch/{file}", line 125, in {function}
"""


def test_in_the_optimizer_a_smaller_batch_is_not_the_first_advice():
    inside = explain(TRACEBACK.format(file="optim/adamw.py", function="_init_group") + SAID[10][0])
    assert (inside.line, inside.in_optimizer) == ("train.py:188", True)
    assert inside.paragraph.endswith("That was at train.py:188, in the optimizer.")
    assert inside.advice[0].startswith("Take a leaner optimizer")
    elsewhere = explain(TRACEBACK.format(file="nn/modules/linear.py", function="forward") + SAID[10][0])
    assert (elsewhere.line, elsewhere.in_optimizer) == ("train.py:188", False)
    assert elsewhere.advice == explain(SAID[10][0]).advice


def test_who_is_killed_after_a_message_that_was_caught_is_killed():
    assert explain(f"{SAID[10][0]}\ncaught\n/bin/sh: line 3: 4122 Killed python train.py").reason == "killed"
    assert explain(f"oom_kill disabled\n{SAID[10][0]}").reason == "full"


def test_what_a_prediction_says_is_understood():
    sizes = {"capacity": 16 * GIB, "context": GIB // 2, "reserved": 15 * GIB, "allowed": None, "advice": TRY_EXPANDABLE}
    assert explain(cuda_message(GIB, allocated=15 * GIB - MIB, **sizes)).reason == "full"
    assert explain(cuda_message(GIB, allocated=12 * GIB, **sizes)).reason == "fragmentation"


@pytest.mark.parametrize("text", ["", "it hangs", "RuntimeError: CUDA error: device-side assert triggered"])
def test_a_text_that_is_none(text):
    with pytest.raises(BadValue, match="no out-of-memory message in it: give the text of the error"):
        explain(text)


def test_on_the_command_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(SAID[0][0].encode())))
    assert cli.main(["explain"]) == 0
    from_stdin = capsys.readouterr().out
    (tmp_path / "log.txt").write_text(SAID[0][0])
    assert cli.main(["explain", str(tmp_path / "log.txt")]) == 0
    assert capsys.readouterr().out == from_stdin == f"{explain(SAID[0][0])}\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"fine")))
    assert cli.main(["explain"]) == cli.main(["explain", "not/there.txt"]) == 2
