"""Clients that use scikit-learn, with FedRo and with FedAvg on the server, simulated by Flower.

    python examples/sklearn_clients.py

The model is two NumPy arrays. Three of twenty clients send their update times -20.
"""

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

import fedro
from fedro.flower import FedRo

CLIENTS, BYZANTINE, ROUNDS = 20, 3, 10
X, Y = load_digits(return_X_y=True)
X, Y, X_TEST, Y_TEST = X[:1400] / 16, Y[:1400], X[1400:] / 16, Y[1400:]
client, server = ClientApp(), ServerApp()


def classifier(arrays: ArrayRecord) -> SGDClassifier:
    """A linear classifier with these weights."""
    model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.1)
    model.classes_, (model.coef_, model.intercept_) = np.arange(10), arrays.to_numpy_ndarrays()
    return model


@client.train()
def train(message: Message, context: Context) -> Message:
    """Pass once over the client's examples."""
    arrays, part = message.content["arrays"], int(context.node_config["partition-id"])
    model = classifier(arrays).partial_fit(X[part::CLIENTS], Y[part::CLIENTS])
    weights = [model.coef_, model.intercept_]
    if part < BYZANTINE:
        start = arrays.to_numpy_ndarrays()
        weights = [old - 20 * (new - old) for old, new in zip(start, weights, strict=True)]
    content = {"arrays": ArrayRecord(weights), "metrics": MetricRecord({"num-examples": 70})}
    return Message(RecordDict(content), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Train with both strategies and print the accuracy on held-out digits."""
    plan = fedro.plan(clients=CLIENTS, byzantine=BYZANTINE, rounds=ROUNDS)
    robust = FedRo(plan=plan, evaluate_clients=0)
    strategies = {"FedAvg": FedAvg(fraction_evaluate=0.0), "FedRo": robust}
    for name, strategy in strategies.items():
        start = ArrayRecord([np.zeros((10, 64)), np.zeros(10)])
        result = strategy.start(grid, start, num_rounds=ROUNDS)
        print(f"{name:8}{classifier(result.arrays).score(X_TEST, Y_TEST):.1%}")


if __name__ == "__main__":
    run_simulation(server, client, CLIENTS)
