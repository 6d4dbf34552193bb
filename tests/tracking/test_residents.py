"""The tensors that stay between steps, and the modules that a step which failed has not entered yet."""

import threading

import torch

from memlab.tracking.residents import Residents


def test_all_modules_are_found_once():
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    marked = []
    Residents(lambda named, category, **_: marked.extend((name, tensor) for name, tensor in named)).all_modules()
    for parts in (model.named_parameters(), model.named_buffers()):
        for name, part in parts:
            assert [found for found, tensor in marked if tensor is part] == [name]


def test_a_thread_that_builds_a_tuple_meanwhile_is_not_broken():
    """CPython refuses to go on with an unfinished tuple that something else has referenced."""
    residents, errors, looked = Residents(lambda *_, **__: None), [], threading.Event()

    def build():
        try:
            while not looked.is_set():
                tuple(item for item in range(20_000))
        except SystemError as error:
            errors.append(error)

    clutter = [[] for _ in range(300_000)]  # a walk through all objects shall take longer than a thread's turn
    builder = threading.Thread(target=build)
    builder.start()
    for _ in range(30):
        residents.all_modules()
    looked.set()
    builder.join()
    del clutter
    assert errors == []
