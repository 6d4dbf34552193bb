import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from memlab import cli
from memlab.cli import lab
from memlab.errors import NotWritten
from memlab.shipped import MANIFEST, copy_notebooks, shipped_folder
from tests.waiting import wait_for


@pytest.fixture
def shipped(tmp_path):
    """A folder as memlab ships it, with two notebooks and what Jupyter leaves behind."""
    source = tmp_path / "shipped"
    for name in ("01.ipynb", "solutions/01.ipynb", ".ipynb_checkpoints/01-checkpoint.ipynb"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(f"{name}, version 1")
    return source


@pytest.fixture
def mine(tmp_path):
    return tmp_path / "mine"


@pytest.fixture
def jupyter(monkeypatch, shipped):
    """``memlab lab`` on the made-up folder, with a list of the options that JupyterLab was started with."""
    started = []
    monkeypatch.setattr(lab, "shipped_folder", lambda: shipped)
    monkeypatch.setattr(lab, "_run_jupyterlab", started.append)
    return started


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_notebooks_are_copied_with_their_folders(shipped, mine):
    assert copy_notebooks(shipped, mine) == []
    assert files(mine) == {"01.ipynb", "solutions/01.ipynb", MANIFEST}
    assert (mine / "solutions/01.ipynb").read_text() == "solutions/01.ipynb, version 1"


def test_an_unedited_notebook_is_updated(shipped, mine):
    copy_notebooks(shipped, mine)
    (shipped / "01.ipynb").write_text("version 2")
    assert copy_notebooks(shipped, mine) == []
    assert (mine / "01.ipynb").read_text() == "version 2"


def test_an_edited_notebook_is_kept_and_named(shipped, mine):
    copy_notebooks(shipped, mine)
    (mine / "01.ipynb").write_text("my work")
    for version in (2, 3):
        (shipped / "01.ipynb").write_text(f"version {version}")
        assert copy_notebooks(shipped, mine) == ["01.ipynb"]
        assert (mine / "01.ipynb").read_text() == "my work"


def test_a_notebook_edited_back_to_the_old_version_is_updated(shipped, mine):
    copy_notebooks(shipped, mine)
    (shipped / "01.ipynb").write_text("version 2")
    (mine / "01.ipynb").write_text("my work")
    copy_notebooks(shipped, mine)
    (mine / "01.ipynb").write_text("01.ipynb, version 1")
    assert copy_notebooks(shipped, mine) == []
    assert (mine / "01.ipynb").read_text() == "version 2"


def test_a_deleted_notebook_comes_back(shipped, mine):
    copy_notebooks(shipped, mine)
    (mine / "01.ipynb").unlink()
    assert copy_notebooks(shipped, mine) == []
    assert (mine / "01.ipynb").exists()


@pytest.mark.parametrize("manifest", ["", "{", "[]", "{}", '{"sha256": 1}', None])
def test_without_a_readable_manifest_whatever_differs_is_kept(shipped, mine, manifest):
    copy_notebooks(shipped, mine)
    (mine / "01.ipynb").write_text("my work")
    if manifest is None:
        (mine / MANIFEST).unlink()
    else:
        (mine / MANIFEST).write_text(manifest)
    assert copy_notebooks(shipped, mine) == ["01.ipynb"]
    assert (mine / "01.ipynb").read_text() == "my work"
    assert set(json.loads((mine / MANIFEST).read_text())["sha256"]) == {"solutions/01.ipynb"}


def test_a_file_of_the_same_name_that_was_there_first_is_kept(shipped, mine):
    mine.mkdir()
    (mine / "01.ipynb").write_text("somebody else's")
    assert copy_notebooks(shipped, mine) == ["01.ipynb"]
    assert (mine / "01.ipynb").read_text() == "somebody else's"


def test_a_folder_in_place_of_a_notebook_is_kept(shipped, mine):
    (mine / "01.ipynb").mkdir(parents=True)
    assert copy_notebooks(shipped, mine) == ["01.ipynb"]
    assert (mine / "01.ipynb").is_dir()


def test_a_failure_half_way_loses_nothing_and_the_next_try_ends_well(shipped, mine, monkeypatch):
    copy_notebooks(shipped, mine)
    (mine / "01.ipynb").write_text("my work")
    (shipped / "solutions/01.ipynb").write_text("version 2")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(NotWritten, match="No space left"):
            copy_notebooks(shipped, mine)
    assert (mine / "01.ipynb").read_text() == "my work"
    assert (mine / "solutions/01.ipynb").read_text() == "solutions/01.ipynb, version 1"
    assert files(mine) == {"01.ipynb", "solutions/01.ipynb", MANIFEST}
    assert copy_notebooks(shipped, mine) == ["01.ipynb"]
    assert (mine / "solutions/01.ipynb").read_text() == "version 2"


def test_lab_copies_and_opens_jupyterlab_on_the_folder(jupyter, mine, capsys):
    assert cli.main(["lab", str(mine), "--no-browser", "--port", "8890"]) == 0
    (options,) = jupyter
    assert "--ServerApp.ip=127.0.0.1" in options
    assert f"--ServerApp.root_dir={mine}" in options
    assert "--no-browser" in options
    assert "--ServerApp.port=8890" in options
    assert not any("token" in option or "password" in option for option in options)
    assert str(mine) in capsys.readouterr().out
    assert (mine / "01.ipynb").exists()


def test_it_opens_the_first_notebook_where_there_is_one(jupyter, shipped, mine):
    cli.main(["lab", str(mine)])
    assert not any("default_url" in option for option in jupyter[0])
    (shipped / "00_start_here.ipynb").write_text("")
    cli.main(["lab", str(mine)])
    assert "--LabApp.default_url=/lab/tree/00_start_here.ipynb" in jupyter[1]


@contextmanager
def started(folder: Path, home: Path) -> Iterator[Path]:
    """A real JupyterLab that ``memlab lab`` has started, for somebody without settings: what it prints, in a file."""
    log = home / "printed.txt"
    told = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")} | {"HOME": str(home)}
    command = [sys.executable, "-m", "memlab", "lab", str(folder), "--no-browser"]
    with log.open("w") as output:
        server = subprocess.Popen(command, env=told, stdout=output, stderr=output)
    try:
        yield log
    finally:
        server.terminate()
        server.wait(60)


def _answered(address: str) -> list[bytes]:
    """The one answer of a server, or none while nobody listens yet."""
    try:
        with urllib.request.urlopen(address) as answer:
            return [answer.read()]
    except urllib.error.URLError:
        return []


def test_jupyterlab_asks_for_no_news_and_prints_its_address_and_no_warnings(tmp_path, mine):
    with started(mine, tmp_path) as log:
        wait_for(lambda: "token=" in log.read_text() or "Error" in log.read_text())
        lines = log.read_text().splitlines()
        address, token = re.search(r"(http://\S+)/lab/tree/00_start_here\.ipynb\?(token=\S+)", log.read_text()).groups()
        asked = f"{address}/lab/api/settings/@jupyterlab/apputils-extension:notification?{token}"
        answers: list[bytes] = []
        wait_for(lambda: answers.extend(_answered(asked)) or answers)  # it prints its address before it listens there
        properties = json.loads(answers[0])["schema"]["properties"]
    assert properties["fetchNews"]["default"] == "false"
    assert properties["checkForUpdates"]["default"] is False
    assert [line for line in lines if re.search(r"warning|^\[[IW]", line, re.IGNORECASE)] == []
    assert lines[:2] == [f"The notebooks are in {mine}", "Jupyter runs until Ctrl-C is pressed here."]


def test_lab_names_the_edited_notebook_and_the_next_step(jupyter, mine, capsys):
    cli.main(["lab", str(mine)])
    (mine / "01.ipynb").write_text("my work")
    cli.main(["lab", str(mine)])
    assert f"Kept your edited {mine / '01.ipynb'}; to get memlab's version, rename yours" in capsys.readouterr().out


def test_without_a_folder_it_is_memlab_notebooks_here(jupyter, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli.main(["lab"])
    assert files(tmp_path / "memlab-notebooks") == {"01.ipynb", "solutions/01.ipynb", MANIFEST}


def test_in_a_folder_that_has_them_it_is_that_one(jupyter, mine, shipped, monkeypatch):
    cli.main(["lab", str(mine)])
    before = files(mine)
    monkeypatch.chdir(mine)
    cli.main(["lab"])
    assert files(mine) == before
    monkeypatch.chdir(shipped)
    cli.main(["lab"])
    assert not (shipped / "memlab-notebooks").exists()
    assert [option for options in jupyter for option in options if "root_dir" in option][1:] == [
        f"--ServerApp.root_dir={folder}" for folder in (mine, shipped)
    ]


def test_in_a_folder_of_those_that_were_copied_it_is_the_one_above(jupyter, mine, monkeypatch):
    cli.main(["lab", str(mine)])
    before = files(mine)
    monkeypatch.chdir(mine / "solutions")
    cli.main(["lab"])
    assert files(mine) == before
    assert f"--ServerApp.root_dir={mine}" in jupyter[-1]


def test_a_folder_whose_links_lead_in_a_circle_is_one_sentence(jupyter, tmp_path, capsys):
    (tmp_path / "one").symlink_to("other")
    (tmp_path / "other").symlink_to("one")
    assert cli.main(["lab", str(tmp_path / "one")]) == 2
    assert "could not be written" in capsys.readouterr().err


def test_they_are_not_copied_into_themselves(jupyter, shipped, monkeypatch, capsys):
    before = files(shipped)
    assert cli.main(["lab", str(shipped / "solutions" / "deep")]) == 2
    assert "choose a folder elsewhere" in capsys.readouterr().err
    assert files(shipped) == before


def test_a_link_that_leads_out_is_not_followed(jupyter, mine, tmp_path, capsys):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    mine.mkdir()
    (mine / "solutions").symlink_to(elsewhere)
    assert cli.main(["lab", str(mine)]) == 2
    assert "leads out of" in capsys.readouterr().err
    assert files(tmp_path / "elsewhere") == set()


def test_nor_is_one_in_the_place_of_the_manifest(jupyter, mine, tmp_path, capsys):
    other = tmp_path / "other.json"
    other.write_text("mine")
    mine.mkdir()
    (mine / ".memlab.json").symlink_to(other)
    assert cli.main(["lab", str(mine)]) == 2
    assert "leads out of" in capsys.readouterr().err
    assert other.read_text() == "mine"


def test_the_shipped_folder_itself_is_opened_as_it_is(jupyter, shipped, monkeypatch):
    before = files(shipped)
    monkeypatch.chdir(shipped.parent)
    assert cli.main(["lab", "shipped"]) == 0
    assert files(shipped) == before
    assert f"--ServerApp.root_dir={shipped}" in jupyter[0]


def test_a_file_in_place_of_the_folder_is_one_sentence(jupyter, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert cli.main(["lab", str(tmp_path / "notes.txt")]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "notes.txt could not be written" in message
    assert "choose another folder" in message
    assert jupyter == []


def test_a_folder_below_a_file_is_one_sentence(jupyter, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert cli.main(["lab", str(tmp_path / "notes.txt" / "deeper")]) == 2
    assert "a file is where a folder is needed" in capsys.readouterr().err


def test_the_kernels_threads_sleep_while_they_wait_unless_the_reader_has_said_how(monkeypatch, shipped, mine):
    started = []
    app = SimpleNamespace(
        LabApp=SimpleNamespace(launch_instance=lambda *_: started.append(os.environ["OMP_WAIT_POLICY"]))
    )
    monkeypatch.setattr(lab, "shipped_folder", lambda: shipped)
    monkeypatch.setattr(lab, "shared_processes", nullcontext)
    monkeypatch.setitem(sys.modules, "jupyterlab.labapp", app)
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    cli.main(["lab", str(mine)])
    monkeypatch.delenv("OMP_WAIT_POLICY")
    cli.main(["lab", str(mine)])
    assert started == ["active", "passive"]


def test_without_jupyterlab_it_says_what_to_install(shipped, mine, monkeypatch, capsys):
    monkeypatch.setattr(lab, "shipped_folder", lambda: shipped)
    monkeypatch.setitem(sys.modules, "jupyterlab.labapp", None)
    assert cli.main(["lab", str(mine)]) == 2
    message = capsys.readouterr().err
    assert "JupyterLab does not start in" in message
    assert 'python -m pip install "jupyterlab>=4,<5"' in message


def test_the_shipped_folder_has_the_notebooks():
    assert list(shipped_folder().glob("*.ipynb"))
