"""The example app on real processes: a SuperLink behind its proxy, SuperNodes with keys that break
down in every way, a server that is killed and started again, and a node that tries to take over."""

import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedro.runs import read
from fedro.server import rule_seed, step
from fedro.simulation.client import evaluate
from fedro.simulation.engines import make_engine
from fedro.simulation.round import make_job
from fedro_app.task import setup_of
from flower_app import run_config
from flower_environment import NGINX, QUIET, free_ports, let_heartbeat_lapse, until
from hostile_node import HostileNode

MISSING = [name for name in ("openssl", "ssh-keygen", "curl", "ps") if shutil.which(name) is None]
MISSING += [] if NGINX else ["nginx"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"a federation needs {', '.join(MISSING)}"),
]
ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples/flower/deploy"
NODES = 5
KILLED = 4  # in the first round
BAD = {  # in the third round / in the second
    0: "raise/none",
    1: "wrong-shape/nan",
    2: "huge(value=10.0)",
    3: "none/silent",
}
USED = [[0, 1, 2, 3], [0, 2, 4], [2, 3, 4]]  # whose updates are used, round by round
CONFIG = {
    "clients": NODES,
    "byzantine": 1,
    "sampled": NODES,
    "num-server-rounds": 3,
    "set": "partition=iid; local_steps=40; client_lr=0.3",
    "online-wait": 5.0,
}
ENV = {
    **os.environ,
    **QUIET,
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "OMP_NUM_THREADS": "1",
}


class Deployed:
    """A federation of deploy/up.sh."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_ports(NODES + 2)
        self.run_folder = folder / "server" / "runs" / "test"
        self.env = {**ENV, "FLWR_HOME": str(folder / "flwr"), "PORT": str(self.port)}

    def command(self, *words, seconds=180):
        done = subprocess.run(
            [*map(str, words)],
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout

    def up(self):
        self.command(DEPLOY / "up.sh", NODES, self.folder, seconds=400)

    def down(self):
        self.command(DEPLOY / "down.sh", self.folder)

    def submit(self, **changes):
        """Start a run; its id."""
        given = {**CONFIG, "folder": str(self.run_folder), **changes}
        text = " ".join(f"{key}={json.dumps(value)}" for key, value in given.items())
        app = ROOT / "examples/flower"
        told = json.loads(
            self.command("flwr", "run", app, "--format", "json", "--run-config", text)
        )
        return str(told["run-id"])

    def statuses(self):
        told = json.loads(self.command("flwr", "list", "--format", "json"))
        return {run["run-id"]: run["status"] for run in told["runs"]}

    def nodes(self):
        """The status of each registered node, by id."""
        told = json.loads(self.command("flwr", "supernode", "list", "--format", "json"))
        statuses = {node["node-id"]: node["status"] for node in told["nodes"]}
        return {node: status for node, status in statuses.items() if status != "unregistered"}

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def pid(self, name):
        return int((self.folder / f"{name}.pid").read_text())

    def invitations(self, number):
        """How many messages a node has received in full."""
        return self.log(f"node-{number}").count("Received successfully")

    def busy(self):
        """Whether clients are at work; Flower starts those again that take 30 s to start."""
        groups = {self.pid(f"node-{i}") for i in range(NODES)}
        table = subprocess.run(
            ["ps", "-ww", "-eo", "pgid=,stat=,args="], capture_output=True, text=True
        )
        rows = [line.split(maxsplit=2) for line in table.stdout.splitlines()]
        return any(int(g) in groups and s[0] != "Z" and "flwr-clientapp" in a for g, s, a in rows)

    def node_id(self, number):
        return re.search(r"SuperNode ID: (\d+)", self.log(f"node-{number}"))[1]

    def let_heartbeat_lapse(self, number):
        let_heartbeat_lapse(self.folder, self.node_id(number))

    def numbers(self):
        """The number in the record of each partition, and its entry in the ledger."""
        ledger = json.loads((self.run_folder / "ledger.json").read_text())
        ids = [self.node_id(i) for i in range(NODES)]
        return [ledger[node]["number"] for node in ids], [ledger[node] for node in ids]

    def check_not_failed(self, run):
        status = self.statuses()[run]
        assert not status.startswith("finished:fail"), self.command("flwr", "log", run, "--show")


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    deployed = Deployed(tmp_path_factory.mktemp("federation"))
    try:
        deployed.up()
        yield deployed
    finally:
        deployed.down()


STRANGERS = {  # who should be refused: the options of a SuperNode, and what it is told
    "unregistered key": (
        ["--root-certificates", "keys/ca.crt", "--auth-supernode-private-key", "stranger.key"],
        r"code: 2004",  # no such node
    ),
    "no key": (["--root-certificates", "keys/ca.crt"], r"404 Not Found.*/v1/fleet/register-node"),
    "no certificate": (["--auth-supernode-private-key", "stranger.key"], r"certificate verify"),
    "plain HTTP": (["--insecure"], r"400 Bad Request"),
}


def refused(log):
    return "Failed to initialize the connection to the SuperLink" in log


@contextmanager
def strangers(federation):
    """SuperNodes that should be refused, each with a log."""
    key = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", "stranger.key"]
    subprocess.run(key, check=True, cwd=federation.folder)
    first, started = free_ports(len(STRANGERS)), []
    try:
        for number, (name, (options, _)) in enumerate(STRANGERS.items()):
            command = ["flower-supernode", "--superlink", f"127.0.0.1:{federation.port}"]
            command += ["--port", str(first + number), "--max-retries", "1", *options]
            with (federation.folder / f"{name}.log").open("w") as log:
                process = subprocess.Popen(
                    command,
                    env={**federation.env, "FLWR_HOME": str(federation.folder / name)},
                    cwd=federation.folder,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            started.append(process)
        yield
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def story(federation):
    """One run: a killed node, a killed server, then nodes that fail in other ways."""
    first = federation.submit(timeout=600.0)
    first_failed = partial(federation.check_not_failed, first)
    until("the first round", 400, lambda: federation.invitations(KILLED) == 1, first_failed)
    start = time.monotonic()
    os.killpg(federation.pid(f"node-{KILLED}"), signal.SIGKILL)
    federation.let_heartbeat_lapse(KILLED)
    pushed = "[Fleet.PushMessages]"
    until("four replies", 400, lambda: federation.log("superlink").count(pushed) >= 4)
    round_seconds = time.monotonic() - start  # on this machine, with what else it has to do
    checkpoint = federation.run_folder / "checkpoints" / "round-000001.safetensors"
    until("the end of the first round", 300, checkpoint.exists, first_failed)
    # If the server is killed while it sends, nodes wait for the rest of their message.
    others = [number for number in range(NODES) if number != KILLED]
    until(
        "the second round",
        400,
        lambda: all(federation.invitations(number) == 2 for number in others),
        first_failed,
    )
    server = int((federation.run_folder / "lock").read_text())
    os.kill(server, signal.SIGKILL)
    rounds_before = len(read(federation.run_folder).rounds)
    federation.up()  # starts the killed node again
    with strangers(federation):
        until("the dead run's clients", 300, lambda: not federation.busy())
        until("all strangers", 200, lambda: all(map(refused, map(federation.log, STRANGERS))))
        nodes = federation.nodes()
    second = federation.submit(
        attackers=",".join(map(str, BAD)),
        attack="; ".join(BAD.values()),
        resume=True,
        timeout=max(45.0, 4 * round_seconds),
    )
    until(
        "the end",
        300 + 10 * round_seconds,
        (federation.run_folder / "summary.json").exists,
        partial(federation.check_not_failed, second),
    )
    until("its status", 120, lambda: federation.statuses()[second].startswith("finished"))
    return SimpleNamespace(
        first=first,
        second=second,
        rounds_before=rounds_before,
        nodes=nodes,
        statuses=federation.statuses(),
        rounds=read(federation.run_folder).rounds,
    )


def test_a_server_that_was_killed_goes_on(story):
    assert story.rounds_before == 1  # it was killed in the middle of the second round
    assert story.statuses[story.second] == "finished:completed"
    assert story.statuses[story.first] != "finished:completed"
    assert [line["round"] for line in story.rounds] == [0, 1, 2]
    assert [line["void"] for line in story.rounds] == [None] * 3
    assert {line["available"] for line in story.rounds} == {NODES}


def test_the_record_names_each_node_that_failed_and_why(federation, story):
    number, ledger = federation.numbers()
    missing, rejected = (
        [{number.index(int(n)): why for n, why in line[key].items()} for line in story.rounds]
        for key in ("missing", "rejected")
    )
    assert [list(lost) for lost in missing] == [[KILLED], [3], [0]]
    assert "error 5" in missing[0][KILLED]
    assert missing[1][3] == "did not answer"
    assert "this client is told to fail" in missing[2][0]
    shape = "'fedro.flat' has shape (2414,) instead of (2410,)"  # the model travels as one array
    assert rejected == [{}, {1: "holds NaN or Inf"}, {1: shape}]
    assert [entry["used"] for entry in ledger] == [sum(i in u for u in USED) for i in range(NODES)]
    assert [sum(entry["missing"].values()) for entry in ledger] == [1, 0, 0, 1, 1]
    assert [sum(entry["rejected"].values()) for entry in ledger] == [0, 2, 0, 0, 0]


def test_evaluations_that_failed_are_in_the_record(federation, story):
    number, ledger = federation.numbers()
    evaluation = story.rounds[-1]["evaluation"]
    assert sorted(evaluation["sampled"]) == sorted(number)
    assert list(evaluation["missing"]) == [str(number[0])]
    assert "this client is told to fail" in evaluation["missing"][str(number[0])]
    assert [sum(entry["unevaluated"].values()) for entry in ledger] == [1, 0, 0, 0, 0]


def after(setup, rounds):
    """The model after some rounds in this process: each tells whose updates the server has."""
    e, model = setup.experiment, setup.start
    with make_engine("inline", setup.engine_config()) as engine:
        for round, clients in enumerate(rounds):
            jobs = [
                make_job(
                    setup, row, partial(setup.federation.train, client), "batches", round, client
                )
                for row, client in enumerate(clients)
            ]
            engine.train(model, jobs, e.lr(round))
            updates = engine.updates[: len(clients)]
            if round:
                updates[clients.index(2)] = 10.0  # what client 2 sends instead
            result = step(
                model,
                updates,
                np.arange(len(clients)),
                setup.rule,
                tolerated=1,
                server_lr=e.server_lr,
                layout=setup.flat,
                seed=rule_seed(0, round),
            )
            assert result.void is None
            model = result.model
    return model


def accuracy(setup, model):
    (x, y), _ = setup.test
    return float(evaluate(setup.flat, model, x, y, setup.local_training)[1].float().mean())


def test_the_model_is_that_of_the_good_replies(federation, story):
    setup = setup_of(run_config(**CONFIG))
    wanted = after(setup, USED)
    saved = load_file(federation.run_folder / "model.safetensors")
    for name, tensor in setup.flat.tensors(wanted).items():
        assert torch.allclose(saved[name], tensor, atol=1e-4)
    assert accuracy(setup, wanted) > 0.85  # 0.9 without any failure


@pytest.mark.parametrize("name", STRANGERS)
def test_strangers_are_refused(federation, story, name):
    said = federation.log(name)
    assert refused(said)
    assert re.search(STRANGERS[name][1], said), said
    assert "SuperNode ID" not in said
    assert len(story.nodes) == NODES


INTRUDER = {
    "pyproject.toml": """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "intruder"
version = "1.0.0"
[tool.flwr.app]
publisher = "intruder"
[tool.flwr.app.components]
serverapp = "intruder.app:server"
clientapp = "intruder.app:client"
[tool.flwr.app.config]
mark = ""
""",
    "intruder/__init__.py": "",
    "intruder/app.py": """
from pathlib import Path
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()

@server.main()
def main(grid, context):
    Path(context.run_config["mark"]).write_text(str(Path.cwd()))
""",
}


class Intruder:
    """Somebody who uses the operator's commands, at an address and with a certificate."""

    def __init__(self, federation, folder, address, certificate):
        self.federation, self.folder, self.mark = federation, folder, folder / "mark"
        (folder / "flwr").mkdir(parents=True)
        (folder / "flwr/config.toml").write_text(
            '[superlink]\ndefault = "theirs"\n[superlink.theirs]\n'
            f'address = "{address}"\nroot-certificates = "{certificate}"\n'
        )
        for name, text in INTRUDER.items():
            (folder / "app" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "app" / name).write_text(text)
        key = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", "more.key"]
        subprocess.run(key, check=True, cwd=folder)

    def flwr(self, *words):
        """Whether the command succeeds, and what it says."""
        env = {**self.federation.env, "FLWR_HOME": str(self.folder / "flwr")}
        command = ["flwr", *words, "--format", "json"]
        done = subprocess.run(
            command, env=env, cwd=self.folder, capture_output=True, text=True, timeout=120
        )
        said = done.stdout + done.stderr
        return done.returncode == 0 and '"success": true' in said, said

    def register(self):
        return self.flwr("supernode", "register", "more.key.pub")

    def run(self):
        return self.flwr("run", "app", "--run-config", f'mark="{self.mark}"')

    def unregister(self, node):
        return self.flwr("supernode", "unregister", node)


def test_a_node_cannot_take_the_federation_over(federation, tmp_path):
    """Not with all that it was given; the same commands work where the operator is."""
    proxy, link = (f"127.0.0.1:{federation.port + i}" for i in range(2))
    keys, node = federation.folder / "keys", federation.folder / "nodes/node-0"
    intruder = Intruder(federation, tmp_path / "node", proxy, node / "ca.crt")
    operator = Intruder(federation, tmp_path / "operator", link, keys / "link.crt")
    nodes, runs = federation.nodes(), federation.statuses()
    honest = federation.node_id(1)

    for done, said in (intruder.register(), intruder.run(), intruder.unregister(honest)):
        assert not done
        assert "404" in said, said
    assert federation.nodes() == nodes
    assert federation.statuses() == runs

    done, said = operator.register()
    assert done, said
    (more,) = set(federation.nodes()) - set(nodes)
    done, said = operator.run()
    assert done, said
    until("the operator's app", 120, operator.mark.exists)
    done, said = operator.unregister(more)
    assert done, said
    assert federation.nodes() == nodes
    assert not intruder.mark.exists()
    assert operator.mark.read_text() == str(federation.folder / "server")


def test_all_other_paths_of_this_superlink_are_refused(federation):
    """The SuperLink lists them itself."""
    proxy, link = (f"https://127.0.0.1:{federation.port + i}" for i in range(2))
    keys = federation.folder / "keys"
    paths = httpx.get(f"{link}/openapi.json", verify=tls(keys / "link.crt")).json()["paths"]
    allowed = set(re.findall(r"location = (/\S+)", (DEPLOY / "fleet.conf.template").read_text()))
    assert allowed < set(paths)
    with httpx.Client(verify=tls(keys / "ca.crt")) as client:
        for path in sorted(set(paths) - allowed):
            assert client.post(proxy + path).status_code == 404, path
            assert client.get(proxy + path).status_code == 405, path
        assert {client.post(proxy + path).status_code for path in allowed} == {415}  # no protobuf


def tls(certificate):
    return ssl.create_default_context(cafile=certificate)


def test_keys_are_closed_to_other_users(federation):
    for name in ("keys", "server", "nodes", "flwr"):
        assert (federation.folder / name).stat().st_mode & 0o077 == 0
    for key in federation.folder.rglob("*.key"):
        assert key.stat().st_mode & 0o077 == 0


@pytest.mark.soak
def test_a_reply_of_10000_arrays_does_not_reach_the_superlink(federation):
    """The other nodes stay online, and the run goes on."""
    hostile, folder = 3, federation.folder / "server/runs/hostile"
    os.killpg(federation.pid(f"node-{hostile}"), signal.SIGKILL)
    federation.let_heartbeat_lapse(hostile)
    home, statuses = federation.folder / f"nodes/node-{hostile}", []

    def attack():
        node.heartbeat()
        if (message := node.pull()) is not None:
            statuses.append(node.reply(message, 10_000))
        return (folder / "summary.json").exists()

    with HostileNode(f"127.0.0.1:{federation.port}", home / "ca.crt", home / "node.key") as node:
        run = federation.submit(folder=str(folder), timeout=45.0, **{"num-server-rounds": 2})
        until("the end", 600, attack, partial(federation.check_not_failed, run))
        online = set(federation.nodes().values())
    assert online == {"online"}
    assert statuses
    assert set(statuses) == {413}
    rounds = read(folder).rounds
    number = json.loads((folder / "ledger.json").read_text())[str(node.node.node_id)]["number"]
    assert [line["void"] for line in rounds] == [None, None]
    assert [list(line["missing"]) for line in rounds] == [[str(number)]] * 2
    federation.up()  # starts node 3 again


@pytest.mark.soak
def test_a_supervised_run_survives_a_superlink_that_is_killed(federation, tmp_path):
    """Nodes get 503 meanwhile, try again, and are online again without any help."""
    folder = federation.folder / "server/runs/supervised"
    given = {**CONFIG, "folder": str(folder), "timeout": 90.0}
    text = " ".join(f"{key}={json.dumps(value)}" for key, value in given.items())
    command = [sys.executable, DEPLOY / "supervise.py", ROOT / "examples/flower"]
    command += ["--run-config", text, "--wait", "5", "--poll", "2"]
    with (tmp_path / "log").open("w") as log:
        supervisor = subprocess.Popen(
            command, env=federation.env, cwd=tmp_path, stdout=log, stderr=log
        )
    try:
        until("a round", 300, (folder / "checkpoints/round-000001.safetensors").exists)
        pids = [federation.pid(f"node-{i}") for i in range(NODES)]
        os.kill(federation.pid("superlink"), signal.SIGKILL)
        os.kill(int((folder / "lock").read_text()), signal.SIGKILL)
        time.sleep(45)  # more than a heartbeat
        federation.up()
        assert supervisor.wait(600) == 0, (tmp_path / "log").read_text()
    finally:
        supervisor.kill()
        supervisor.wait()
    said = (tmp_path / "log").read_text()
    assert "resuming in 5 s" in said
    assert "finished:completed" in said
    assert [line["round"] for line in read(folder).rounds] == [0, 1, 2]
    assert pids == [federation.pid(f"node-{i}") for i in range(NODES)]
    assert set(federation.nodes().values()) == {"online"}
