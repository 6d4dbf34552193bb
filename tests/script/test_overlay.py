"""Files that a predicted script writes, and what it is refused: each in a process of its own, without a prediction."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

import pytest

from memlab.script.overlay import _exchange

HEAD = """
    import io, os, pathlib, shutil, socket, sqlite3, subprocess, sys, tempfile, urllib.request
    from pathlib import Path
    from memlab.errors import Refused
    from memlab.script.net import Net
    from memlab.script.overlay import Overlay

    overlay = Overlay(Path(sys.argv[1]))
    overlay.install()
    net = Net(overlay)
    net.spread()
"""


@pytest.fixture
def there(tmp_path):
    """A folder as the script finds it, and with all its content, time and again."""
    folder = tmp_path / "there"
    (folder / "data" / "deep").mkdir(parents=True)
    (folder / "data" / "a.txt").write_text("old")
    (folder / "data" / "deep" / "b.txt").write_text("deep")
    (folder / "runs").mkdir()
    return folder


def listing(folder):
    return {path: (path.lstat().st_mtime_ns, path.lstat().st_size) for path in [folder, *folder.rglob("*")]}


def run(text, there):
    """Return what the text prints, run in the folder with an overlay; the folder stays as it was."""
    own, cache = there.parent / "own", there.parent / "cache"
    own.mkdir()
    cache.mkdir()
    before = listing(there)
    words = [sys.executable, "-c", dedent(HEAD) + dedent(text), str(own)]
    root = str(Path(__file__).parents[2])
    environment = {"PYTHONPATH": root, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(words, cwd=there, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert listing(there) == before
    return done.stdout.split()


def test_what_is_written_is_read_back(there):
    text = """
        os.makedirs("out/logs")
        with open("out/logs/log.txt", "w") as file:
            file.write("1")
        with open("out/logs/log.txt", "a") as file:
            file.write("2")
        Path("out/more.txt").write_text("3")
        print(open("out/logs/log.txt").read(), Path("out/more.txt").read_text(), sorted(os.listdir("out")))
        print(os.path.exists("out/logs"), os.path.isdir("out"), os.path.getsize("out/logs/log.txt"))
        print(*sorted(path.name for path in Path("out").rglob("*")))
        print(*sorted(os.listdir()))
    """
    assert run(text, there) == [
        *("12", "3", "['logs',", "'more.txt']", "True", "True", "2"),
        *("log.txt", "logs", "more.txt", "data", "out", "runs"),
    ]


def test_a_file_that_is_there_is_changed_for_the_script_alone(there):
    text = """
        with open("data/a.txt", "a") as file:
            file.write("+new")
        print(open("data/a.txt").read())
        with open("data/a.txt", "r+") as file:
            file.write("OLD")
        print(open("data/a.txt").read())
        os.replace("data/a.txt", "data/c.txt")
        print(os.path.exists("data/a.txt"), open("data/c.txt").read(), *sorted(os.listdir("data")))
        descriptor = os.open("data/c.txt", os.O_WRONLY | os.O_TRUNC)
        os.write(descriptor, b"short")
        os.close(descriptor)
        print(Path("data/c.txt").read_text())
    """
    assert run(text, there) == ["old+new", "OLD+new", "False", "OLD+new", "c.txt", "deep", "short"]


def test_what_is_removed_is_gone_for_the_script_alone(there):
    text = """
        shutil.rmtree("data")
        print(os.path.exists("data"), os.path.exists("data/deep/b.txt"), *os.listdir())
        os.makedirs("data")
        print(*os.listdir("data"), len(os.listdir("data")))
        Path("data/new.txt").touch()
        os.rename("data", "moved")
        print(*os.listdir("moved"), os.path.exists("data"))
        for wrong in (lambda: open("data/a.txt"), lambda: os.mkdir("runs"), lambda: os.mkdir("x/y"),
                      lambda: os.remove("x"), lambda: open("runs/new.txt", "r+")):
            try:
                wrong()
            except OSError as error:
                print(type(error).__name__)
    """
    names = ["FileNotFoundError", "FileExistsError", *["FileNotFoundError"] * 3]
    assert run(text, there) == ["False", "False", "runs", "0", "new.txt", "False", *names]


def test_a_copy_a_link_and_a_folder_to_work_in(there):
    text = """
        shutil.copytree("data", "runs/copy")
        os.symlink("a.txt", "data/link.txt")
        os.link("data/a.txt", "data/hard.txt")
        print(Path("runs/copy/deep/b.txt").read_text(), Path("data/link.txt").read_text(), open("data/hard.txt").read())
        os.makedirs("runs/1")
        os.chdir("runs/1")
        Path("here.txt").write_text("here")
        print(open("here.txt").read(), *os.listdir())
        Path("touched.txt").touch()
        os.truncate("../../data/a.txt", 2)
        print(os.path.getsize("touched.txt"), open("../../data/a.txt").read())
        os.chmod("here.txt", 0o600)
        os.utime("here.txt")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "temporary.txt").write_text("temporary")
            print(*os.listdir(folder))
        connection = sqlite3.connect("runs.db")
        connection.execute("create table runs (id)")
        connection.commit()
        print(os.path.exists("runs.db"))
    """
    assert run(text, there) == ["deep", "old", "old", "here", "here.txt", "0", "ol", "temporary.txt", "True"]


def test_what_a_prediction_does_itself_is_not_the_scripts(there):
    text = """
        from memlab.vgpu.cudnn.client import ByCapability
        from memlab.vgpu.cudnn.disk_cache import folder
        process = ByCapability(Path("no library"))._command
        print(subprocess.run(process, stderr=subprocess.DEVNULL).returncode)
        folder().mkdir(parents=True)
        Path(folder(), "answers.jsonl").write_text("an answer")
    """
    assert run(text, there) == ["1"]
    assert (there.parent / "cache" / "memlab" / "answers.jsonl").read_text() == "an answer"


def test_what_the_overlay_does_not_catch_is_refused(there):
    text = """
        class Socket(socket.socket):
            pass
        for wrong in (
            lambda: io.FileIO("data/new.txt", "w"),
            lambda: urllib.request.urlopen("http://example.com/data.zip"),
            lambda: socket.create_connection(("10.1.2.3", 80)),
            lambda: os.execv(sys.executable, ["python", "x.py"]),
        ):
            try:
                wrong()
                print("done")
            except OSError as error:
                print(type(error).__name__)
        print(*(sentence.partition(":")[0].replace(" ", "_") for sentence in net.refused))
        print(len(open(os.devnull, "w").name))
    """
    printed = run(text, there)
    assert printed[:4] == ["Refused", "URLError", *["Refused"] * 2]
    assert printed[4:-1] == [
        f"the_script_would_have_written_{there / 'data' / 'new.txt'}".replace(str(there) + "/", ""),
        "the_script_needs_the_network_(example.com)",
        "the_script_needs_the_network_(10.1.2.3)",
        "the_script_would_have_started_'python_x.py'",
    ]


def test_a_program_is_not_there(there):
    text = """
        import platform, shutil
        for words in (["git", "rev-parse", "HEAD"], ["/sbin/ldconfig", "-p"], [sys.executable, "--version"],
                      [shutil.which("sh")]):
            try:
                subprocess.check_output(words)
            except FileNotFoundError as error:
                print(error.errno, error.strerror.replace(" ", "_"))
        for command in ("lspci | grep -i nvidia", "pip install accelerate && which torchrun", ""):
            print(os.waitstatus_to_exitcode(os.system(command)), *subprocess.getstatusoutput(command)[:1])
        print(platform.processor() or "unknown", len(net.refused))
    """
    answer = ["2", "No_such_file_or_directory_(a_prediction_starts_no_other_program)"]
    assert run(text, there) == [*answer * 4, *["127", "127"] * 3, "unknown", "0"]


def test_the_size_of_the_terminal_may_be_asked(there):
    text = """
        columns, lines = shutil.get_terminal_size()
        print(os.popen("stty size", "r").read().split() == [str(lines), str(columns)])
        print(int(subprocess.check_output("tput cols 2>/dev/null", shell=True)) == columns, len(net.refused))
    """
    assert run(text, there) == ["True", "True", "0"]


def test_a_module_that_the_script_has_written_is_imported(there):
    text = """
        import importlib.util
        os.makedirs("cache/written_modules/part")
        for name in ("__init__", "part/__init__", "part/one"):
            Path("cache/written_modules", name + ".py").write_text("name = __name__")
        sys.path.append(os.path.abspath("cache"))
        import written_modules.part.one
        print(written_modules.part.one.name)
        spec = importlib.util.spec_from_file_location("by_path", "cache/written_modules/part/one.py")
        by_path = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(by_path)
        print(by_path.name)
        Path("there.py").write_text("name = 'new'")
        sys.path.append(os.getcwd())
        import there
        print(there.name)
    """
    (there / "there.py").write_text("name = 'old'")
    assert run(text, there) == ["written_modules.part.one", "by_path", "new"]


@pytest.mark.parametrize(
    "words",
    [
        [sys.executable, "-u", "train.py"], ["python3.11", "-m", "torch.distributed.run", "train.py"],
        ["torchrun", "train.py"], ["bash", "train.sh"], ["./train.sh"], ["sh", "-c", "cd x; WORLD=2 torchrun y"],
    ],
)  # fmt: skip
def test_what_trains_elsewhere_is_refused(words, there):
    text = f"""
        import shlex
        words = {words}
        for start in (lambda: subprocess.Popen(words), lambda: os.system(shlex.join(words)),
                      lambda: subprocess.run(shlex.join(words), shell=True)):
            try:
                start()
            except Refused as error:
                print("started" in str(error))
        print(len(net.refused) in (1, 2))
    """
    assert run(text, there) == ["True"] * 4


def test_where_modules_are_may_be_asked(there):
    text = """
        code = "import sys, json; print(json.dumps(sys.path))"
        import json
        print(type(json.loads(subprocess.check_output([sys.executable, "-c", code]))).__name__, len(net.refused))
    """
    assert run(text, there) == ["list", "0"]


def test_what_is_in_a_module_is_asked_nothing():
    class Shy:  # as torch.distributed.reduce_op, which warns of being deprecated
        def __getattribute__(self, name):
            raise AssertionError(name)

    _exchange(SimpleNamespace(shy=Shy()), {})
