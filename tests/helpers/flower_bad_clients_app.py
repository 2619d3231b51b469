"""An app with Byzantine clients over Ray: python flower_bad_clients_app.py FOLDER ROUNDS."""

import sys

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

import fedro
from fedro.flower import FedRo

TARGET = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
client, server = ClientApp(), ServerApp()


@client.train()
def train(message, context):
    """One gradient step towards the target; clients 0 to 2 do worse things."""
    number, lr = context.node_config["partition-id"], message.content["config"]["lr"]
    w = message.content["arrays"]["w"].numpy()
    new = w - lr * (w - TARGET - np.float32(0.01 * np.sin(number)))
    if number == 0:
        new = new * np.nan
    if number == 1:
        raise RuntimeError("no data")
    if number == 2:
        new = w + 100
    metrics = MetricRecord({"train_loss": float(((w - TARGET) ** 2).mean()), "num-examples": 1})
    content = RecordDict({"arrays": ArrayRecord({"w": Array(new)}), "metrics": metrics})
    return Message(content, reply_to=message)


@client.evaluate()
def evaluate(message, context):
    """How far from the target; client 2 lies."""
    w = message.content["arrays"]["w"].numpy()
    loss = float(((w - TARGET) ** 2).mean())
    lie = 1e9 if context.node_config["partition-id"] == 2 else loss
    record = MetricRecord({"eval_loss": lie, "num-examples": 1})
    return Message(RecordDict({"metrics": record}), reply_to=message)


@server.main()
def main(grid, context):
    """FedRo in the place of FedAvg."""
    plan = fedro.plan(clients=15, byzantine=3, rounds=50, sampled=11)
    strategy = FedRo(plan=plan, folder=sys.argv[1], resume=True, seed=0, evaluate_every=5)
    start = ArrayRecord({"w": Array(np.zeros((3, 4), np.float32))})
    config = ConfigRecord({"lr": 0.75})
    rounds = int(sys.argv[2])
    result = strategy.start(grid, start, num_rounds=rounds, timeout=60, train_config=config)
    error = float(abs(result.arrays["w"].numpy() - TARGET).max())
    print("ERROR", error, "LOSS", result.evaluate_metrics_clientapp[rounds]["eval_loss"])


if __name__ == "__main__":
    run_simulation(server, client, 15, backend_config={"client_resources": {"num_cpus": 1}})
