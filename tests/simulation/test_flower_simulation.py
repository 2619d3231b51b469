"""``fedro run`` with engine=flower, on Ray: the bits of `workers`, and no process left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest
import torch
from safetensors.torch import load_file

from fedro.runs import read

pytest.importorskip("ray")
TIMEOUT = 300.0  # seconds; a busy machine may need many to start Ray
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
            os.kill(os.getpid(), signal.SIGKILL)
        if word == "hang":
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

    def start(self, *words):
        env = {**os.environ, "FEDRO_TEST": self.mark, "ORDER": str(self.order)}
        env |= {"RAY_worker_niceness": "0"}  # 15 by default: too polite on a busy machine
        env.pop("OMP_NUM_THREADS", None)
        command = [Path(sys.executable).with_name("fedro"), "run", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.started.append(
            subprocess.Popen(
                command, cwd=self.path, env=env, **pipes, process_group=0, stdin=subprocess.DEVNULL
            )
        )
        return self.started[-1]

    def end(self):
        """After a test that has failed, too."""
        for process in self.started:
            process.kill()
            process.communicate(timeout=TIMEOUT)

    def run(self, *words):
        process = self.start(*words)
        out, err = process.communicate(timeout=TIMEOUT)
        return process.returncode, out, err

    def begun(self, name, rounds=1):
        """Wait until so many rounds are written down."""
        file, deadline = self.path / name / "rounds.jsonl", time.monotonic() + TIMEOUT
        while not file.exists() or file.read_text().count("\n") < rounds:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def left(self):
        """The processes that are still there after a while: what they are."""
        deadline = time.monotonic() + 180  # Ray looks once a minute, and later on a busy machine
        while (processes := list(self.processes())) and time.monotonic() < deadline:
            time.sleep(0.2)
        return processes

    def processes(self):
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (path / "environ").read_bytes():
                    yield (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue


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


@pytest.mark.slow
def test_a_process_that_is_killed_changes_nothing(place):
    assert place.run("mine.toml", "--set", "engine=workers", "--out", "workers")[0] == 0
    process = place.start("mine.toml", "--set", "engine=flower", "--out", "flower")
    place.begun("flower", 2)
    place.order.write_text("die")
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, out + err
    assert not place.order.exists()  # somebody has died of it
    assert same(place.path / "workers", place.path / "flower")
    assert decisions(place.path / "workers") == decisions(place.path / "flower")
    assert any(line["missing"] for line in read(place.path / "flower").rounds)
    assert err == ""


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_goes_on(place, how):
    many = ["--set", "rounds=30"]  # so that it cannot be over before it is stopped
    process = place.start("mine.toml", *many, "--set", "engine=flower", "--out", "flower")
    place.begun("flower", 2)
    if how is signal.SIGTERM:
        place.order.write_text("hang")  # and no job ends any more
        process.send_signal(how)
    else:
        os.killpg(process.pid, how)  # as a terminal does
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130, out + err
    assert "Stopped and saved. Continue with: fedro run --resume --out flower" in out
    assert place.left() == []
    place.order.unlink(missing_ok=True)
    code, out, err = place.run("--resume", "--out", "flower")
    assert code == 0, out + err
    assert place.run("mine.toml", *many, "--set", "engine=workers", "--out", "workers")[0] == 0
    assert same(place.path / "workers", place.path / "flower")


@pytest.mark.slow
def test_an_error_in_the_model_is_told_and_saved(place):
    process = place.start("mine.toml", "--set", "engine=flower", "--out", "flower")
    place.begun("flower", 1)
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
        "The run is saved. Continue with: fedro run --resume --out flower",
    ]


@pytest.mark.slow
def test_nothing_is_left_when_it_is_killed(place):
    process = place.start("mine.toml", "--set", "engine=flower", "--out", "flower")
    place.begun("flower", 1)
    process.kill()
    process.communicate(timeout=TIMEOUT)
