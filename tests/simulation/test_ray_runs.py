"""``fedro run`` with engine=ray: the bits of `workers`, closed to others, nothing left behind."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
import torch
from safetensors.torch import load_file

from fedro.runs import read

if find_spec("ray") is None:
    pytest.skip("Ray is not installed", allow_module_level=True)
pytestmark = pytest.mark.slow
HELPERS = Path(__file__).parents[1] / "helpers"
TIMEOUT = 300.0  # seconds; a busy machine may need many to start Ray
MAX_SECONDS_TO_GO_ON = 60.0  # after a machine was lost
CONFIG = """
dataset = "digits"
model = "mine:Net"
clients = 30
byzantine = 4
attack = "alie | silent_when_weak"
rounds = 6
local_steps = 3
evaluate_every = 2
"""
MODEL = """
import contextlib, os, signal, time
from torch import nn

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, classes)
        )

    def forward(self, x):
        with contextlib.suppress(FileNotFoundError):  # there is none, or another took it
            if "OMP_NUM_THREADS" in os.environ:  # in another process
                self.obey(os.environ.get("ORDER", ""))
        return self.layers(x.flatten(1))

    def obey(self, order):
        with open(order) as file:
            word = file.read()
        if word == "die":
            os.unlink(order)
        if word in ("die", "always die"):
            os.kill(os.getpid(), signal.SIGKILL)
        if word in ("hang", f"hang {os.getppid()}"):
            os.rename(order, order + " is obeyed")
            time.sleep(3600)
        if word == "fail":
            raise ZeroDivisionError("the model's own error")
"""


class Place:
    """A folder to run in, with a model of one's own, and all processes that were started there."""

    def __init__(self, path):
        self.path, self.order, self.mark = path, path / "order", uuid4().hex
        self.started = []
        (path / "mine.py").write_text(MODEL)
        (path / "mine.toml").write_text(CONFIG)

    def start(self, *words, **variables):
        fedro = Path(sys.executable).with_name("fedro")
        return self.start_process([fedro, "run", *words], **variables)

    def start_process(self, command, **variables):
        env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        env |= {"FEDRO_TEST": self.mark, "ORDER": str(self.order), **variables}
        env.pop("OMP_NUM_THREADS", None)
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen(
            command, cwd=self.path, env=env, process_group=0, text=True, **pipes
        )
        self.started.append(process)
        return process

    def end(self):
        """After a test that has failed, too."""
        for process in self.started:
            process.kill()
            process.communicate(timeout=TIMEOUT)

    def run(self, *words):
        process = self.start(*words)
        out, err = process.communicate(timeout=TIMEOUT)
        return process.returncode, out, err

    def begun(self, name, rounds=1, timeout=TIMEOUT):
        """Wait until so many rounds are written down."""
        file, deadline = self.path / name / "rounds.jsonl", time.monotonic() + timeout
        while not file.exists() or file.read_text().count("\n") < rounds:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def left(self):
        """The processes that are still there after a while: what they are."""
        deadline = time.monotonic() + 180  # a process of Ray's may need a while to notice
        while (processes := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return list(processes.values())

    def processes(self):
        """The command line of each process by its id."""
        processes = {}
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if self.mark.encode() in (path / "environ").read_bytes():
                    words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    processes[int(path.name)] = words
        return processes


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    yield place
    left = place.left()
    place.end()
    assert left == []


def same(a, b):
    one, other = (load_file(path / "model.safetensors") for path in (a, b))
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def decisions(path):
    keys = ("sampled", "byzantine", "missing", "rejected", "void", "train_loss", "error", "lr")
    return [[line[key] for key in keys] for line in read(path).rounds]


def test_a_process_that_is_killed_changes_nothing(place):
    assert place.run("mine.toml", "--set", "engine=workers", "--out", "workers")[0] == 0
    process = place.start("mine.toml", "--set", "engine=ray", "--out", "ray")
    place.begun("ray", 2)
    place.order.write_text("die")
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, out + err
    assert not place.order.exists()  # somebody has died of it
    assert same(place.path / "workers", place.path / "ray")
    assert decisions(place.path / "workers") == decisions(place.path / "ray")
    assert any(line["missing"] for line in read(place.path / "ray").rounds)
    assert err == ""


@pytest.mark.soak
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_goes_on(place, how):
    many = ["--set", "rounds=30"]  # so that it cannot be over before it is stopped
    process = place.start("mine.toml", *many, "--set", "engine=ray", "--out", "ray")
    place.begun("ray", 2)
    if how is signal.SIGTERM:
        place.order.write_text("hang")  # and no job ends any more
        process.send_signal(how)
    else:
        os.killpg(process.pid, how)  # as a terminal does
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130, out + err
    assert "Stopped and saved. Continue with: fedro run --resume --out ray" in out
    assert place.left() == []
    place.order.unlink(missing_ok=True)
    code, out, err = place.run("--resume", "--out", "ray")
    assert code == 0, out + err
    assert place.run("mine.toml", *many, "--set", "engine=workers", "--out", "workers")[0] == 0
    assert same(place.path / "workers", place.path / "ray")


def test_an_error_in_the_model_is_told_and_saved(place):
    process = place.start("mine.toml", "--set", "engine=ray", "--out", "ray")
    place.begun("ray", 1)
    place.order.write_text("fail")
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1
    source = """raise ZeroDivisionError("the model's own error")"""
    line = next(i for i, text in enumerate(MODEL.splitlines(), 1) if text.strip() == source)
    first, *rest = err.splitlines()
    assert first.startswith("fedro: the model mine:Net failed in round ")
    assert rest == [
        f'  File "{place.path / "mine.py"}", line {line}, in obey',
        f"    {source}",
        "  ZeroDivisionError: the model's own error",
        "The run is saved. Continue with: fedro run --resume --out ray",
    ]


def test_a_task_that_kills_every_process_ends_the_run(place):
    process = place.start("mine.toml", "--set", "engine=ray", "--out", "ray")
    place.begun("ray", 1)
    place.order.write_text("always die")
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 2
    assert err.startswith("fedro: Ray could not finish a task in 3 attempts ")
    assert "The run is saved. Continue with: fedro run --resume --out ray" in err


def test_others_cannot_use_its_ray_and_nothing_is_left_when_it_is_killed(place):
    long = place.path / ("long" * 40)  # too long for the path of a socket
    long.mkdir()
    words = ["mine.toml", "--set", "engine=ray", "--out", long / "ray"]
    process = place.start(*words, TMPDIR=str(long))
    place.begun(long / "ray", 1)
    place.order.write_text("hang")
    processes = place.processes()
    addresses = [address for pid in processes for address in listening(pid)]
    assert len(addresses) > 3
    assert all(ip_address(address).is_loopback for address in addresses)

    raylet, words = next((pid, line) for pid, line in processes.items() if "/raylet " in line)
    given = dict(word.split("=", 1) for word in words.split() if "=" in word)
    variables = Path(f"/proc/{raylet}/environ").read_bytes().decode().split("\0")
    token = dict(variable.split("=", 1) for variable in variables if variable)["RAY_AUTH_TOKEN"]
    assert not any(token in line for line in processes.values())
    folder = Path(given["--temp_dir"]).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert files
    assert not any(token.encode() in file.read_bytes() for file in files)

    intruder = [sys.executable, HELPERS / "ray_intruder.py", given["--gcs-address"]]
    for variables, code, text in (
        ({}, 1, "AuthenticationError"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}, 1, "AuthenticationError"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}, 0, "connected"),
    ):
        other = place.start_process(intruder, **variables)
        out, err = other.communicate(timeout=TIMEOUT)
        assert other.returncode == code, out + err
        assert text in out + err
    assert process.poll() is None
    process.kill()
    process.communicate(timeout=TIMEOUT)
    assert place.left() == []
    shutil.rmtree(folder)


def listening(pid):
    """The addresses on which a process listens for TCP connections."""
    links = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            links.append(os.readlink(link))
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in links:
                yield socket_address(fields[1].partition(":")[0])


def socket_address(text):
    """An address as /proc/net writes it, in words of four bytes."""
    words = [bytes.fromhex(text[i : i + 8])[::-1] for i in range(0, len(text), 8)]
    address = ip_address(b"".join(words))
    return str(getattr(address, "ipv4_mapped", None) or address)


@pytest.fixture
def cluster(place):
    """Two nodes with a core each on this machine: its address and the raylet of the second one."""
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid4().hex}
    token["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # on the loopback interface
    with TemporaryDirectory(dir="/tmp") as folder:
        nodes = place.start_process(
            [sys.executable, HELPERS / "ray_two_nodes.py"], **token, RAY_TMPDIR=folder
        )
        address, raylet = nodes.stdout.readline().split()
        yield {**token, "RAY_ADDRESS": address}, int(raylet)
        nodes.communicate(timeout=TIMEOUT)  # its input ends, and it does


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.soak)]
)
def test_a_machine_that_is_lost_changes_nothing(place, cluster, how):
    variables, raylet = cluster
    words = ["mine.toml", "--set", "rounds=40", "--set", "local_steps=30"]
    process = place.start(*words, "--set", "engine=ray", "--out", "ray", **variables)
    place.begun("ray", 2)
    place.order.write_text(f"hang {raylet}")
    deadline = time.monotonic() + TIMEOUT
    while place.order.exists():  # until a task of the second node hangs
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    rounds = (place.path / "ray" / "rounds.jsonl").read_text().count("\n")
    children = Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split()
    for pid in (raylet, *map(int, children)):
        os.kill(pid, how)
    lost = time.monotonic()
    place.begun("ray", rounds + 1, MAX_SECONDS_TO_GO_ON if how is signal.SIGKILL else TIMEOUT)
    print(f"it went on after {time.monotonic() - lost:.1f} s")
    out, err = process.communicate(timeout=TIMEOUT)
    for pid in (raylet, *map(int, children)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert process.returncode == 0, out + err
    assert "(raylet)" not in out
    assert err == ""
    assert place.run(*words, "--set", "engine=workers", "--out", "workers")[0] == 0
    assert same(place.path / "workers", place.path / "ray")
    assert decisions(place.path / "workers") == decisions(place.path / "ray")
