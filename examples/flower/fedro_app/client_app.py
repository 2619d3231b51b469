"""A client: K steps of SGD on its own data; or an attacker, if the run config says so."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedro.common.streams import seeded, stream
from fedro.flower import flat_arrays
from fedro.models import FlatModel
from fedro.simulation.client import evaluate, local_update
from fedro.simulation.round import make_job
from fedro.simulation.setup import Setup
from fedro_app.attackers import (
    FAILURES,
    attack_in_round,
    attacks_of,
    fail,
    forge,
    misshapen,
    parse_lone_attack,
)
from fedro_app.task import setup_of, with_clients

app = ClientApp(mods=[flat_arrays])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train for K steps and return the new weights."""
    config = message.content["config"]
    round, lr = int(config["server-round"]) - 1, float(config["lr"])
    setup, client, attack = identify(context, round)
    fail(attack, round, context.run_config)
    model, start = received(setup, message)
    examples = setup.federation.train(client)
    forger = parse_lone_attack(attack).at(round) if attack and attack not in FAILURES else None
    if forger is not None:
        rng = stream(setup.experiment.seed, "poison", client)
        examples = forger.poison(examples, setup.federation.classes, rng)
    job = make_job(setup, 0, lambda: examples, "batches", round, client)
    x, y = (part.to(setup.device) for part in job.batches())
    update = torch.empty_like(start)
    with seeded(job.seed):
        loss = local_update(model, start, x, y, setup.local_training, lr, update)
    if forger is not None:
        forge(forger, setup, start, update, round, client)
    tensors = model.tensors(start + update)
    if attack == "wrong-shape":
        tensors = misshapen(tensors)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(examples.y)})
    return Message(
        RecordDict({"arrays": ArrayRecord(tensors), "metrics": metrics}), reply_to=message
    )


@app.evaluate()
def evaluate_(message: Message, context: Context) -> Message:
    """Loss and accuracy on this client's test data. An attacker claims that everything is wrong."""
    round = int(message.content["config"]["server-round"]) - 1
    setup, client, attack = identify(context, round)
    fail(attack, round, context.run_config)
    model, weights = received(setup, message)
    x, y = (part.to(setup.device) for part in setup.federation.test(client))
    claimed: dict[str, float] = {"num-examples": len(y)}
    if attack:
        claimed |= {"eval_loss": 1e9, "eval_acc": 0.0}
    elif len(y):
        losses, right = evaluate(model, weights, x, y, setup.local_training)
        claimed |= {"eval_loss": float(losses.mean()), "eval_acc": float(right.float().mean())}
    return Message(RecordDict({"metrics": MetricRecord(claimed)}), reply_to=message)


def identify(context: Context, round: int) -> tuple[Setup, int, str | None]:
    """The experiment, this client's number in it, and its attack in this round, if any."""
    client, of = (context.node_config.get(key) for key in ("partition-id", "num-partitions"))
    config = with_clients(context.run_config, of)
    clients = int(config["clients"])
    if not isinstance(client, int) or not 0 <= client < clients or of not in (None, clients):
        raise ValueError(
            f"partition-id={client} of num-partitions={of}, and the run config has clients="
            f"{clients}: start as many SuperNodes, with partition-id from 0 to {clients - 1}"
        )
    attack = attacks_of(config, clients).get(client)
    return setup_of(config), client, None if attack is None else attack_in_round(attack, round)


def received(setup: Setup, message: Message) -> tuple[FlatModel, torch.Tensor]:
    """The server's model as a module to train, and its weights as one vector."""
    module = setup.build()
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    model = FlatModel(module, setup.device)
    return model, model.vector.clone()
