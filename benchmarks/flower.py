"""What a round of FedRo costs on Flower, beside Flower's own FedAvg and FedTrimmedAvg.

python benchmarks/flower.py [--sampled 27] [--turns 4] [--parts]

All strategies take turns in one simulation of 150 nodes, whose clients only add a little noise to
the model of FEMNIST (2,368,318 parameters), so that what is left is what a round costs by itself.
With --parts: what the server does with the replies, without a network.
"""

import argparse
import logging
import os
import tempfile
import time
from pathlib import Path
from statistics import median

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg, FedTrimmedAvg, Strategy
from flwr.simulation import run_simulation
from flwr.supercore.task_identity import TaskIdentity

import fedro
from fedro.flower import FedRo
from fedro.flower.layout import Layout
from fedro.flower.replies import receive_updates
from fedro.models import build
from fedro.rules import parse_rule
from fedro.server import step

NODES, ROUNDS = 150, 5
WANTED = 1.2  # times the round of FedAvg
client = ClientApp()


@client.train()
def train(message, context):
    arrays, number = message.content["arrays"], context.node_config["partition-id"]
    new = {}
    for name, array in arrays.items():
        old = array.numpy()
        noise = np.random.default_rng(number).standard_normal(1024, np.float32)
        new[name] = Array(old + 0.01 * np.resize(noise, old.shape))
    metrics = MetricRecord({"train_loss": 1.0, "num-examples": 10})
    return Message(RecordDict({"arrays": ArrayRecord(new), "metrics": metrics}), reply_to=message)


def model() -> ArrayRecord:
    state = build("femnist_cnn", (1, 28, 28), 62).state_dict()
    return ArrayRecord({name: Array(tensor.numpy()) for name, tensor in state.items()})


def strategies(sampled: int, folder: Path) -> dict[str, Strategy]:
    """Without evaluations by clients."""
    plan = fedro.plan(clients=NODES, byzantine=15, rounds=500, sampled=sampled)
    share = {"fraction_train": sampled / NODES + 1e-9, "fraction_evaluate": 0.0}
    return {
        "FedAvg": FedAvg(**share),
        "FedRo": FedRo(plan=plan, evaluate_clients=0),
        "FedRo, with checkpoints": FedRo(plan=plan, evaluate_clients=0, folder=folder),
        "FedTrimmedAvg": FedTrimmedAvg(**share, beta=plan.tolerated / sampled),
    }


def seconds_of_rounds(strategy: Strategy, grid) -> list[float]:
    """Of all but the first, which makes room."""
    at: list[float] = []
    strategy.start(
        grid,
        model(),
        num_rounds=ROUNDS,
        timeout=120,
        evaluate_fn=lambda server_round, arrays: at.append(time.perf_counter()),
    )
    return np.diff(at)[1:].tolist()


def simulate(sampled: int, turns: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    server = ServerApp()

    @server.main()
    def main(grid, context):
        logging.getLogger("flwr").setLevel(logging.ERROR)
        for turn in range(turns + 1):
            with tempfile.TemporaryDirectory() as folder:
                for name, strategy in strategies(sampled, Path(folder) / "run").items():
                    seconds = seconds_of_rounds(strategy, grid)
                    if turn:  # the first is for compilers and caches
                        found.setdefault(name, []).extend(seconds)
                    print(turn, name, *(f"{each:.2f}" for each in seconds), flush=True)

    resources = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2}}
    run_simulation(server, client, NODES, backend_config=resources)
    return found


def tell(found: dict[str, list[float]], sampled: int) -> None:
    base = {how: how(found["FedAvg"]) for how in (min, median)}
    print(f"\na round: {NODES} nodes, n̂ = {sampled}, d = 2,368,318, {len(found['FedAvg'])} rounds")
    print(f"{'':26}{'best':>9}{'median':>9}{'to FedAvg: best':>18}{'median':>9}")
    for name, seconds in found.items():
        ratios = (min(seconds) / base[min], median(seconds) / base[median])
        print(
            f"{name:26}{min(seconds):7.2f} s{median(seconds):7.2f} s"
            f"{ratios[0]:18.2f}{ratios[1]:9.2f}"
        )
    ratio = min(found["FedRo"]) / base[min]
    faster = min(found["FedTrimmedAvg"]) / min(found["FedRo"])
    print(
        f"FedRo takes {ratio:.2f} times as long as FedAvg (wanted: at most {WANTED}) and is "
        f"{faster:.2f} times as fast as FedTrimmedAvg (wanted: above 1)"
    )


def parts(sampled: int) -> None:
    """What becomes of the replies, in ms."""
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    start = model()
    layout = Layout(start)
    vector = layout.vector(start)
    random = np.random.default_rng(0)
    replies = []
    for node in range(sampled):
        noise = torch.from_numpy(random.standard_normal(layout.width, np.float32))
        sent = Message(RecordDict({"arrays": start}), node, "train")
        metrics = MetricRecord({"loss": 1.0})
        content = RecordDict({"arrays": layout.record(vector + noise), "metrics": metrics})
        replies.append((node, Message(content, reply_to=sent)))
    updates = torch.empty(sampled, layout.width)
    rule, tolerated = parse_rule("nnm | trimmed_mean"), (sampled - 1) // 3
    times: dict[str, list[float]] = {"read and screen": [], "step": [], "pack": [], "x.sum()": []}
    for _ in range(7):
        at = [time.perf_counter()]
        nodes = list(range(sampled))
        _, _, rows = receive_updates(replies, nodes, updates, vector, layout, "arrays")
        at.append(time.perf_counter())
        done = step(vector, updates, rows, rule, tolerated=tolerated, server_lr=1.0, flat=layout)
        at.append(time.perf_counter())
        layout.record(done.model)
        at.append(time.perf_counter())
        updates.sum()
        at.append(time.perf_counter())
        for name, seconds in zip(times, np.diff(at), strict=True):
            times[name].append(1000 * seconds)
    print(f"n̂ = {sampled}, d = {layout.width:,}")
    for name, found in times.items():
        print(f"{name:16} {min(found):8.1f} ms best {median(found):8.1f} ms median")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sampled", type=int, default=27)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--parts", action="store_true")
    given = parser.parse_args()
    if given.parts:
        parts(given.sampled)
    else:
        tell(simulate(given.sampled, given.turns), given.sampled)
