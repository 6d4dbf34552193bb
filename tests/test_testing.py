"""The pytest fixture with which a project's tests hold its memory."""

import json

import pytest
import torch

from memlab.testing import UPDATE, PredictedPeak

pytest_plugins = ["pytester"]


def train(device, width=64, batch_size=8):
    from torch import nn, ones

    blocks = [nn.Sequential(nn.Linear(64, width), nn.Linear(width, 64)) for _ in range(3)]
    model = nn.Sequential(*blocks).to(device)
    while True:
        loss = model(ones(batch_size, 64, device=device)).sum()
        loss.backward()
        yield loss


@pytest.fixture
def peak(tmp_path):
    """A check of ``train``'s peak, of the record of 8 sequences."""
    file = tmp_path / "test_train.peaks.json"
    PredictedPeak(file, "test_memory", updates=True)(train, gpu="T4")
    return PredictedPeak(file, "test_memory")


def test_what_is_recorded_adds_up(peak, tmp_path):
    recorded = json.loads((tmp_path / "test_train.peaks.json").read_text())["test_memory"]
    assert (recorded["gpu"], recorded["torch"]) == ("T4", torch.__version__)
    assert sum(recorded["parts"].values()) == recorded["peak_allocated"]
    assert recorded["parts"]["parameters of *.*"] == 6 * (64 * 64 + 64) * 4
    assert peak(train, gpu="T4").peak_reserved == recorded["peak_reserved"]


def test_a_peak_that_has_grown_fails_with_what_has(peak):
    with pytest.raises(AssertionError) as caught:
        peak(train, gpu="T4", batch_size=20_000)
    told = str(caught.value).splitlines()[0]
    assert told.startswith("The predicted peak went from 16.5 MiB to ")
    assert " on T4: +" in told
    assert " MiB activations of *.*" in told
    assert told.endswith(f"If that is wanted, record it with pytest {UPDATE}.")


def test_another_torch_is_named(peak, tmp_path):
    file = tmp_path / "test_train.peaks.json"
    file.write_text(file.read_text().replace(torch.__version__, "2.1.0"))
    with pytest.raises(AssertionError, match=rf"\(torch 2.1.0 to {torch.__version__.replace('+', '.')}\)"):
        peak(train, gpu="T4", batch_size=20_000)


def test_a_tolerance_may_be_given(peak):
    peak(train, gpu="T4", batch_size=20_000, tolerance=10)


def test_a_peak_that_has_fallen_passes_with_a_warning(tmp_path):
    file = tmp_path / "test_train.peaks.json"
    PredictedPeak(file, "test_memory", updates=True)(train, gpu="T4", batch_size=20_000)
    with pytest.warns(UserWarning, match=r"The predicted peak went from \d.* MiB to 16.5 MiB on T4: -"):
        PredictedPeak(file, "test_memory")(train, gpu="T4")


def test_a_test_may_hold_several(peak, tmp_path):
    peak(train, gpu="T4")
    with pytest.raises(AssertionError, match="has no peak of 'test_memory 2'"):
        peak(train, gpu="L4")


def test_what_does_not_fit_fails_also_while_it_is_recorded(tmp_path):
    file = tmp_path / "test_train.peaks.json"
    with pytest.raises(
        AssertionError, match=r"Out of memory outside of forward, backward and optimizer at .* predicted for T4\."
    ):
        PredictedPeak(file, "test_memory", updates=True)(train, gpu="T4", batch_size=100_000_000)
    assert not file.exists()


def test_the_fixture_is_pytests(pytester, monkeypatch):
    pytester.makepyfile(
        test_loop="""
        import torch

        def train(device):
            while True:
                yield torch.ones(8, device=device).sum()

        def test_memory(predicted_peak):
            predicted_peak(train, gpu="T4")
        """
    )
    pytester.runpytest_subprocess(UPDATE).assert_outcomes(passed=1)
    assert list(json.loads((pytester.path / "test_loop.peaks.json").read_text())) == ["test_memory"]
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
