"""Time of a round with FedRo and with Flower's own FedAvg, in the same simulation.

    python benchmarks/flower.py [--rounds 8] [--repeat 3]

Both strategies sample the same number of nodes, and the nodes only add noise to the model of the
paper's FEMNIST network (2,368,318 parameters), so what is measured is the work of the strategy and
of Flower. Each simulation runs in a process of its own, in turns; the first round, in which Ray
starts its workers, is left out. The figure is the median over rounds, the best of the repetitions.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time

NODES, SAMPLED, BYZANTINE = 100, 20, 5
SHAPES = [(64, 1, 5, 5), (64,), (128, 64, 5, 5), (128,), (1024, 2048), (1024,), (62, 1024), (62,)]
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def simulate(kind, rounds):
    """Run one simulation and print the seconds of each round."""
    import numpy as np
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    import fedro
    from fedro.flower import FedRo

    client, server = ClientApp(), ServerApp()

    @client.train()
    def train(message, context):
        rng = np.random.default_rng(context.node_config["partition-id"])
        arrays = {
            name: Array(array.numpy() + rng.normal(size=1).astype(np.float32))
            for name, array in message.content["arrays"].items()
        }
        metrics = MetricRecord({"train_loss": 1.0, "num-examples": 1})
        content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics})
        return Message(content, reply_to=message)

    @server.main()
    def main(grid, context):
        stamps = []
        if kind == "fedro":
            plan = fedro.plan(clients=NODES, byzantine=BYZANTINE, rounds=rounds, sampled=SAMPLED)
            strategy = FedRo(plan=plan, evaluate_clients=0)
        else:
            share = SAMPLED / NODES
            strategy = FedAvg(fraction_train=share, fraction_evaluate=0.0, min_available_nodes=2)
        start = ArrayRecord(
            {str(i): Array(np.zeros(shape, np.float32)) for i, shape in enumerate(SHAPES)}
        )

        def stamp(round, arrays):
            stamps.append(time.perf_counter())

        strategy.start(grid, start, num_rounds=rounds, evaluate_fn=stamp)
        seconds = [b - a for a, b in itertools.pairwise(stamps[1:])]
        print("SECONDS", json.dumps(seconds), flush=True)

    config = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2}}
    run_simulation(server, client, NODES, backend_config=config)


def measured(kind, rounds):
    """The median seconds of a round in a new process."""
    command = [sys.executable, __file__, "--simulate", kind, "--rounds", str(rounds)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **QUIET}, timeout=600
    )
    for line in done.stdout.splitlines():
        if line.startswith("SECONDS"):
            return statistics.median(json.loads(line.split(" ", 1)[1]))
    sys.exit(f"the simulation of {kind} failed:\n{done.stderr[-3000:]}")


def main():
    """Run both in turns and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--simulate", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.simulate:
        simulate(given.simulate, given.rounds)
        return
    best = {"fedavg": float("inf"), "fedro": float("inf")}
    for _ in range(given.repeat):
        for kind in best:
            best[kind] = min(best[kind], measured(kind, given.rounds))
    ratio = best["fedro"] / best["fedavg"]
    print(
        f"{NODES} nodes, {SAMPLED} sampled, 2,368,318 parameters; seconds a round (best of medians)"
    )
    print(f"FedAvg {best['fedavg']:.2f}  FedRo {best['fedro']:.2f}  ratio {ratio:.2f} (limit 1.2)")


if __name__ == "__main__":
    main()
