"""150 nodes with digits, 15 of them Byzantine, over Ray: python flower_digits_app.py FOLDER."""

import sys
from functools import cache

import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

import fedro
from fedro.flower import FedRo
from fedro.flower.messaging import send_and_collect
from fedro.models import FlatModel
from fedro.simulation.client import local_update
from fedro.simulation.preparation import prepare
from fedro.simulation.round import client_examples, make_job

PLAN = fedro.plan(clients=150, byzantine=15, rounds=4)
EXPERIMENT = fedro.Experiment(
    dataset="digits",
    model="mlp(hidden=32)",
    clients=PLAN.clients,
    byzantine=PLAN.byzantine,
    attack="sign_flip(own=True)",
    sampled=PLAN.sampled,
    tolerated=PLAN.tolerated,
    rounds=PLAN.rounds,
    local_steps=30,
    client_lr=0.5,
    engine="inline",
)
client, server = ClientApp(), ServerApp()
prepared = cache(prepare)


@client.query()
def who(message, context):
    """Its number among the clients of the experiment."""
    record = MetricRecord({"partition": context.node_config["partition-id"]})
    return Message(RecordDict({"who": record}), reply_to=message)


@client.train()
def train(message, context):
    """What this client does in a simulation of our own; a bad one goes the other way."""
    setup, number = prepared(EXPERIMENT), context.node_config["partition-id"]
    config, bad = message.content["config"], bool(setup.byzantine[number])
    job = make_job(
        setup,
        0,
        lambda: client_examples(setup, number, setup.attack if bad else None),
        "batches",
        config["server-round"] - 1,
        number,
    )
    flat = FlatModel(setup.build())
    arrays = message.content["arrays"].items()
    flat.module.load_state_dict({name: torch.tensor(array.numpy()) for name, array in arrays})
    start, update = flat.vector.clone(), torch.empty(flat.width)
    local_update(flat, start, *job.batches(), setup.local_training, config["lr"], update)
    weights = start - update if bad else start + update
    return Message(RecordDict({"arrays": as_record(flat.tensors(weights))}), reply_to=message)


def as_record(tensors):
    return ArrayRecord({name: Array(tensor.numpy()) for name, tensor in tensors.items()})


def by_partition():
    """An order of nodes: each is asked once for its number."""
    numbers = {}

    def order(grid, nodes):
        new = [Message(RecordDict(), node, "query") for node in nodes if node not in numbers]
        for node, reply in send_and_collect(grid, new, 60.0):
            numbers[node] = reply().content["who"]["partition"]
        return sorted(nodes, key=numbers.get)

    return order


@server.main()
def main(grid, context):
    """Train with FedRo, with the draws of the experiment."""
    strategy = FedRo(
        plan=PLAN,
        rule=EXPERIMENT.rule,
        client_lr=EXPERIMENT.client_lr,
        local_steps=EXPERIMENT.local_steps,
        folder=sys.argv[1],
        seed=EXPERIMENT.seed,
        evaluate_clients=0,
        order=by_partition(),
    )
    setup = prepared(EXPERIMENT)
    start = as_record(setup.flat.tensors(setup.start))
    strategy.start(grid, start, num_rounds=EXPERIMENT.rounds, timeout=120)


if __name__ == "__main__":
    import flower_digits_app as app  # by its name, by which other processes find it

    config = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2}}
    run_simulation(app.server, app.client, PLAN.clients, backend_config=config)
