"""The samples of a model while it trains: right for what it has learned, and without effect on the training."""

import random
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

from memlab import measure
from memlab.data import batches, image_batches
from memlab.lab.samples import DIGITS, GOES_ON, LETTERS, LINE, sample
from memlab.nets import GPT, ResNet, ViT
from tests.lab.test_session import make

SIZE = 16  # pixels of an image
READ = LINE.decode()[1 : LETTERS + 1].replace(" ", "·").replace("\n", "↵")


def gpt(**options):
    return GPT(**{"depth": 1, "width": 32, "heads": 2, "context": 64} | options)


def vit(**options):
    return ViT(**{"depth": 1, "width": 32, "heads": 2, "image": SIZE, "patch": 4} | options)


def resnet(**options):
    return ResNet(**{"blocks": (1, 1), "width": 8} | options)


def data_of(model, batch_size):
    if isinstance(model, GPT):
        return batches(batch_size, 16)
    return image_batches(batch_size, SIZE)


def trained(model, steps, lr=0.01):
    """The model after so many steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for _, (inputs, targets) in zip(range(steps), data_of(model, 16), strict=False):
        model(inputs, targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def lines(text):
    """Return the samples, by the word before each."""
    return {name: said.strip() for name, _, said in (line.partition(":") for line in text.split("\n"))}


def test_a_gpt_reads_a_line_and_guesses_each_next_letter():
    said = lines(sample(["no model", 3, gpt(context=256)]))
    assert list(said) == ["reads", "guesses", "perplexity"]
    assert said["reads"] == READ
    assert len(said["guesses"]) == len(READ) == LETTERS


def test_a_short_context_reads_less():
    assert lines(sample([gpt(context=8)]))["reads"] == READ[:8]


def always(model, letter):
    """The GPT, made to say one letter whatever it reads."""
    model.head.weight = nn.Parameter(torch.zeros_like(model.head.weight))
    model.head.weight.data[ord(letter)] = 1e4
    nn.init.zeros_(model.norm.weight)
    nn.init.ones_(model.norm.bias)
    return model


@pytest.mark.parametrize(("letter", "shown"), [("x", "x"), (" ", "·"), ("\n", "↵"), ("\t", "?")])
def test_a_gpt_says_what_its_weights_say_and_its_last_sample_goes_on_by_itself(letter, shown):
    model = always(gpt(), letter)
    assert lines(sample([model]))["guesses"] == LETTERS * shown
    assert lines(sample([model], is_last=True)) == {
        "reads": READ,
        "guesses": LETTERS * shown,
        "writes": GOES_ON * shown,
        "perplexity": "inf, of 256 letters to choose from",  # it is sure, and wrong
    }
    assert GOES_ON == LETTERS  # lines of one length are all whole where one is


def test_a_gpt_that_writes_reads_what_it_has_written():
    """Of a GPT that says after each letter the next of the alphabet, the text is the alphabet."""

    class Next(GPT):
        def features(self, tokens):
            return nn.functional.one_hot((tokens + 1) % 256, 256).float() * 1e4

    model = Next(depth=1, width=32, heads=2, context=8)
    model.head = nn.Linear(256, 256, bias=False)
    model.head.weight = nn.Parameter(torch.eye(256))
    said = lines(sample([model], is_last=True))
    assert said["guesses"] == "".join(chr(ord(letter) + 1) for letter in LINE.decode()[:8])
    begins = said["writes"][0]
    assert ord(begins) == LINE[8] + 1
    assert said["writes"][:10] == "".join(chr(ord(begins) + i) for i in range(10))


def test_what_training_teaches_can_be_read():
    """Untrained, it writes any of 256 bytes; after some steps, letters as they stand in Python's source."""
    before, after = gpt(), trained(gpt(), 100)

    def legible(model):
        return sum(
            letter not in "\N{REPLACEMENT CHARACTER}?" for letter in lines(sample([model], is_last=True))["writes"]
        )

    assert legible(before) < 0.6 * GOES_ON
    assert legible(after) > 0.9 * GOES_ON


def test_it_says_among_how_many_letters_the_model_still_hesitates():
    """The exponential of the loss on the line: of all letters alike it is their number."""
    undecided = gpt()
    nn.init.zeros_(undecided.head.weight)
    assert lines(sample([undecided]))["perplexity"] == "256, of 256 letters to choose from"
    before, after = (
        float(lines(sample([model]))["perplexity"].partition(",")[0]) for model in (gpt(), trained(gpt(), 100))
    )
    assert before > 150
    assert after < 60


@pytest.mark.parametrize("make_model", [vit, resnet])
def test_an_image_classifier_says_which_digits_it_reads(make_model):
    said = sample([make_model()]).split("\n")
    digits, guesses = (line.partition(":")[2].split() for line in said[:2])
    assert [line.partition(":")[0] for line in said[:2]] == ["digits", "guesses"]
    size = SIZE if make_model is vit else 32
    _, labels = next(image_batches(DIGITS, size, split="held-out"))
    assert list(map(int, digits)) == labels.tolist()
    right = sum(digit == guess for digit, guess in zip(digits, guesses, strict=True))
    assert said[2:] == [f"{right} of {DIGITS} right"]


def test_an_image_classifier_is_asked_as_it_is_used():
    model = trained(vit(), 60)
    images, labels = next(image_batches(DIGITS, SIZE, split="held-out"))
    logits = []
    model.head.register_forward_hook(lambda module, given, made: logits.append(made))
    model.eval()(images, labels)
    guesses = " ".join(map(str, logits[0].argmax(-1).tolist()))
    assert sample([model]).split("\n")[1] == f"guesses: {guesses}"


@pytest.mark.parametrize("make_model", [gpt, vit, resnet])
def test_a_sample_builds_no_graph(make_model):
    model, graphs = make_model(), []
    model.head.register_forward_hook(lambda module, given, logits: graphs.append(logits.requires_grad))
    sample([model])
    assert graphs == [False]


def test_the_first_of_several_models_is_asked():
    first, second = always(gpt(), "a"), always(gpt(), "b")
    assert lines(sample([first, second]))["guesses"] == LETTERS * "a"
    assert lines(sample([nn.Linear(3, 3), second, first]))["guesses"] == LETTERS * "b"


class Headless(GPT):
    """A GPT that makes no logits of all its letters at once, as where the loss is fused."""

    def forward(self, tokens, targets):
        return self.features(tokens).square().mean()


@pytest.mark.parametrize(
    "values",
    [
        [],
        [nn.Linear(3, 3), "text", None],
        [gpt(vocabulary=64)],  # its tokens are no letters
        [gpt(vocabulary=1000)],
        [Headless(depth=1, width=32, heads=2, context=64)],
        [vit(channels=1)],  # the digits have colours
        [resnet().to(torch.bfloat16)],
    ],
    ids=["nothing", "no net", "few tokens", "many tokens", "no head", "grey", "16 bits"],
)
def test_who_has_nothing_to_say_says_nothing_and_no_run_ends_of_it(values):
    assert sample(values) == sample(values, is_last=True) == ""


def test_a_model_that_raises_says_nothing_and_is_left_as_it_was():
    model = gpt()

    def refuses(module, given):
        raise RuntimeError("mine")

    refusing = model.norm.register_forward_pre_hook(refuses)
    assert sample([model]) == ""
    refusing.remove()
    assert model.training
    assert model.head._forward_hooks == {}


def tensors(model):
    """Those that a sample could change: weights, BatchNorm's statistics, gradients."""
    gradients = {f"{name}.grad": parameter.grad for name, parameter in model.named_parameters()}
    return deepcopy(model.state_dict() | {name: grad for name, grad in gradients.items() if grad is not None})


def state(model):
    """Return the state that sampling could change beside the tensors."""
    modules, parameters = dict(model.named_modules()), dict(model.named_parameters())
    return {
        "wants gradients": {name: (p.requires_grad, p.grad is None) for name, p in parameters.items()},
        "training": {name: module.training for name, module in modules.items()},
        "hooks": {name: len(module._forward_hooks) for name, module in modules.items()},
        "random": (torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())),
        "modes": (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")),
    }


def unchanged(model, **options):
    """Return True if a sample of the model, which is not empty, leaves all as it was."""
    before = tensors(model), state(model)
    assert sample([model], **options) != ""
    torch.testing.assert_close(tensors(model), before[0], rtol=0, atol=0)
    return state(model) == before[1]


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("make_model", [gpt, vit, resnet])
def test_a_sample_changes_nothing(make_model, is_last):
    model = make_model()
    inputs, targets = next(data_of(model, 4))
    model(inputs, targets).backward()
    next(iter(model.parameters())).requires_grad_(False)
    assert unchanged(model, is_last=is_last)


@pytest.mark.parametrize("frozen", ["stem.1", "blocks.0.first_norm", ""])
def test_a_part_that_does_not_train_still_does_not(frozen):
    """As BatchNorm's statistics that are kept while the rest learns; and a whole model that only answers."""
    model = resnet()
    model.get_submodule(frozen).eval()
    assert unchanged(model)


def test_a_sample_in_autocast_leaves_no_copies_of_weights_without_gradients():
    model = gpt()
    inputs, targets = next(data_of(model, 4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert sample([model]) != ""
        model(inputs, targets).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.filterwarnings("ignore")  # of the compiler's own
def test_a_sample_compiles_nothing():
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    model = gpt()
    said = sample([model], is_last=True)
    for block in model.blocks:
        block.compile(backend=backend)
    assert sample([model], is_last=True) == said
    assert compiled == []
    model(*next(data_of(model, 4)))
    assert len(compiled) == 1  # what trains is


# In a run


def loop_of(make_model):
    def train(device, *, batch_size=4):
        model = make_model().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        noise = nn.Dropout(0.1)
        for inputs, targets in data_of(model, batch_size):
            inputs, targets = inputs.to(device), targets.to(device)
            if inputs.is_floating_point():
                inputs = noise(inputs)  # numbers are drawn in every step
            loss = model(inputs, targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss

    return train


STEPS = 12  # the first and the eleventh are followed by a sample, and so is the last


@pytest.mark.parametrize("make_model", [gpt, vit, resnet])
def test_a_run_with_samples_has_the_losses_of_one_without(make_model):
    train = loop_of(make_model)
    session, told = make(train, steps=STEPS), []
    session.screen.on_change = lambda name: told.append(session.screen.run["sample"]) if name == "run" else None
    trace = session.run(batch_size=4)
    assert trace.losses == measure(train, steps=STEPS, device="cpu", batch_size=4).losses
    assert told[0] != ""  # there is one after the first step
    assert told[-1].startswith(("reads:", "digits:"))
    if make_model is gpt:
        assert len(lines(told[-1])["writes"]) == GOES_ON


def test_a_run_with_samples_takes_the_memory_of_one_without():
    train = loop_of(gpt)
    sampled, plain = make(train, steps=STEPS).run(batch_size=4), measure(train, steps=STEPS, device="cpu", batch_size=4)
    assert [step.peak_allocated for step in sampled.steps] == [step.peak_allocated for step in plain.steps]
    assert sampled.allocated == plain.allocated


def test_a_loop_that_ends_by_itself_keeps_the_sample_before():
    def short(device, *, batch_size=4):
        yield from (loss for _, loss in zip(range(3), loop_of(vit)(device, batch_size=batch_size), strict=False))

    def ends(device, *, batch_size=4):
        model = vit().to(device)
        for _, (images, labels) in zip(range(3), data_of(model, batch_size), strict=False):
            yield model(images.to(device), labels.to(device))

    session = make(ends)
    session.run()
    assert session.screen.run["sample"].startswith("digits:")
    session = make(short)  # whose model is out of sight, in zip
    session.run()
    assert session.screen.run["sample"] == ""


def test_a_loop_that_yields_from_another_has_its_model():
    def wrapped(device, *, batch_size=4):
        yield from loop_of(vit)(device, batch_size=batch_size)

    session = make(wrapped)
    session.run()
    assert session.screen.run["sample"].startswith("digits:")


def test_a_run_whose_model_says_nothing_goes_on(monkeypatch):
    session = make(loop_of(lambda: Headless(depth=1, width=32, heads=2, context=64)))
    assert len(session.run().steps) == 5
    assert session.screen.run["sample"] == ""
