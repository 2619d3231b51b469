"""Time and memory of a deployed server: with hostile replies, and with a model of many arrays.

    PYTHONPATH=tests/helpers python benchmarks/deployment.py hostile     # about 5 minutes
    PYTHONPATH=tests/helpers python benchmarks/deployment.py arrays      # about 5 minutes

`hostile` starts a federation of five nodes with `examples/flower/deploy/up.sh`. One of them is
replaced by a node that sends replies made to do harm. The figures are the peak memory of the server
app and the seconds of a round, beside those of a run in which this node is silent. `arrays` sends a
model shaped like ResNet-50 (320 arrays, 102 MB) to three nodes, with named arrays and in its flat
form.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from flower_environment import QUIET, free_ports, let_heartbeat_lapse
from hostile_node import HostileNode, RepeatedChunk

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "examples/flower/deploy"
SECONDS_FOR_A_RUN = 600


def noise(size):
    """Bytes that no two parts share."""
    return np.random.default_rng(0).integers(256, size=size, dtype=np.uint8)


HOSTILE = {  # what the node sends: the arrays, and how many of their parts
    "silent": None,
    "one part 600 times": (lambda: {"a": RepeatedChunk(600)}, None),
    "one part 3,000 times": (lambda: {"a": RepeatedChunk(3000)}, None),
    "100 MB of noise": (lambda: {"a": noise(10**8)}, None),
    "1,000 arrays": (lambda: {f"a{i}": np.full(1, i) for i in range(1000)}, None),
    "10,000 arrays": (lambda: {f"a{i}": np.full(1, i) for i in range(10_000)}, None),
    "half of a reply": (lambda: {"a": np.zeros(10**6)}, 1),
}


class Federation:
    """Processes of up.sh in a temporary folder."""

    def __init__(self, nodes):
        self.nodes, self.folder = nodes, Path(tempfile.mkdtemp(prefix="fedro-"))
        self.port = free_ports(nodes + 2)
        self.env = {**os.environ, **QUIET, "FLWR_HOME": str(self.folder / "flwr")}
        self.env["PATH"] = f"{Path(sys.executable).parent}:{self.env['PATH']}"
        self.env |= {"PORT": str(self.port), "OMP_NUM_THREADS": "1"}

    def command(self, *words, seconds=400):
        done = subprocess.run(
            [*map(str, words)], env=self.env, capture_output=True, text=True, timeout=seconds
        )
        if done.returncode:
            sys.exit(f"{words} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def __enter__(self):
        self.command(DEPLOY / "up.sh", self.nodes, self.folder)
        return self

    def __exit__(self, *_):
        self.command(DEPLOY / "down.sh", self.folder)
        shutil.rmtree(self.folder)

    def run(self, app, config, folder, meanwhile=lambda: None):
        """Run an app to its end; returns the lines of its rounds and the server's peak memory."""
        text = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        told = json.loads(
            self.command("flwr", "run", app, "--format", "json", "--run-config", text)
        )
        if not told.get("run-id"):
            sys.exit(f"the run did not start: {told}")
        end, peak = time.monotonic() + SECONDS_FOR_A_RUN, 0
        while not (folder / "summary.json").exists():
            meanwhile()
            peak = max(peak, peak_memory(folder / "lock"))
            if time.monotonic() > end:
                sys.exit(self.command("flwr", "log", told["run-id"], "--show")[-3000:])
            time.sleep(0.05)
        lines = (folder / "rounds.jsonl").read_text().splitlines()
        self.wait_for_end(str(told["run-id"]))
        return [json.loads(line) for line in lines], peak

    def wait_for_end(self, run):
        for _ in range(120):
            runs = json.loads(self.command("flwr", "list", "--format", "json"))["runs"]
            if any(r["run-id"] == run and r["status"].startswith("finished") for r in runs):
                return
            time.sleep(1)


def peak_memory(lock):
    """The most memory that the process with this lock has had, in bytes."""
    try:
        status = Path(f"/proc/{int(lock.read_text())}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024
    except (OSError, ValueError, TypeError):
        return 0


def hostile():
    """Print what the server does with each hostile reply."""
    with Federation(5) as federation:
        pid = int((federation.folder / "node-3.pid").read_text())
        os.killpg(pid, signal.SIGKILL)
        log = (federation.folder / "node-3.log").read_text()
        let_heartbeat_lapse(federation.folder, re.search(r"SuperNode ID: (\d+)", log)[1])
        home = federation.folder / "nodes/node-3"
        address = f"127.0.0.1:{federation.port}"
        print(f"{'reply':22}{'peak memory':>14}{'a round':>10}  what the record says", flush=True)
        with HostileNode(address, home / "ca.crt", home / "node.key") as node:
            for number, (name, sends) in enumerate(HOSTILE.items()):
                folder = federation.folder / f"server/runs/{number}"
                config = {"clients": 5, "byzantine": 1, "sampled": 5, "num-server-rounds": 2}
                config |= {"timeout": 30.0, "evaluate-every": 0, "folder": str(folder)}
                answers = []

                def attack(sends=sends, answers=answers):
                    node.heartbeat()
                    message = node.pull()
                    if message is not None and sends is not None:
                        make, parts = sends
                        answers.append(node.send(message, make(), parts))

                lines, peak = federation.run(ROOT / "examples/flower", config, folder, attack)
                lost = {r for x in lines for r in [*x["missing"].values(), *x["rejected"].values()]}
                seconds = min(sum(line["seconds"].values()) for line in lines)
                usable = [5 - len(x["missing"]) - len(x["rejected"]) for x in lines]
                text = f"{'; '.join(lost)}; usable {usable}; the proxy answered {set(answers)}"
                print(f"{name:22}{peak / 2**20:11.0f} MB{seconds:8.1f} s  {text}", flush=True)


APP = {
    "pyproject.toml": """
[project]
name = "arrays"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[tool.hatch.build.targets.wheel]
packages = ["arrays"]
[tool.flwr.app]
publisher = "fedro"
[tool.flwr.app.components]
serverapp = "arrays.app:server"
clientapp = "arrays.app:client"
[tool.flwr.app.config]
flat = false
folder = ""
""",
    "arrays/__init__.py": "",
    "arrays/app.py": '''
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

import fedro
from fedro.flower import FedRo, flat_arrays

client = ClientApp(mods=[flat_arrays])
server = ServerApp()


def resnet50():
    """The shapes of ResNet-50's arrays: 161 parameters, 106 statistics and 53 counters."""
    shapes, counters = {}, []

    def convolution(name, into, out, kernel):
        shapes[f"{name}.weight"] = (out, into, kernel, kernel)
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{name}.norm.{part}"] = (out,)
        counters.append(f"{name}.norm.num_batches_tracked")

    convolution("stem", 3, 64, 7)
    width = 64
    for stage, (blocks, inner) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)]):
        for block in range(blocks):
            name = f"stage{stage}.{block}"
            convolution(f"{name}.a", width, inner, 1)
            convolution(f"{name}.b", inner, inner, 3)
            convolution(f"{name}.c", inner, 4 * inner, 1)
            if block == 0:
                convolution(f"{name}.down", width, 4 * inner, 1)
            width = 4 * inner
    shapes["head.weight"], shapes["head.bias"] = (1000, width), (1000,)
    rng = np.random.default_rng(0)
    arrays = {n: Array(rng.random(shape, dtype=np.float32)) for n, shape in shapes.items()}
    return ArrayRecord(arrays | {name: Array(np.array(0)) for name in counters})


@client.train()
def train(message, context):
    rng = np.random.default_rng(context.node_config["partition-id"])
    arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            arrays[name] = array + rng.normal(size=array.shape).astype(array.dtype)
    record = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    metrics = MetricRecord({"train_loss": 1.0})
    return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)


@server.main()
def main(grid, context):
    config = context.run_config
    plan = fedro.plan(clients=3, byzantine=0, rounds=3, sampled=3)
    strategy = FedRo(plan=plan, folder=config["folder"], evaluate_clients=0, flat=config["flat"])
    strategy.start(grid, resnet50(), num_rounds=3, timeout=300)
''',
}


def arrays():
    """Print the time of a round with named arrays and with the flat form."""
    with Federation(3) as federation, tempfile.TemporaryDirectory() as app:
        for name, text in APP.items():
            path = Path(app) / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        for flat in (True, False):
            folder = federation.folder / f"server/runs/flat-{flat}"
            config = {"flat": flat, "folder": str(folder)}
            lines, peak = federation.run(app, config, folder)
            seconds = [round(sum(line["seconds"].values()), 1) for line in lines]
            lost = [len(line["missing"]) + len(line["rejected"]) for line in lines]
            kind = "flat form" if flat else "named arrays"
            print(
                f"{kind:14} rounds took {seconds} s, replies lost {lost}, "
                f"peak memory of the server {peak / 2**20:.0f} MB",
                flush=True,
            )


def main():
    """Run one of the two."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("hostile", "arrays"))
    {"hostile": hostile, "arrays": arrays}[parser.parse_args().what]()


if __name__ == "__main__":
    main()
