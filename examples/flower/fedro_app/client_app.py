"""A client: K steps of SGD on its own data; or, if the run config says so, a bad one."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedro.common.streams import seeded, stream
from fedro.models import FlatModel
from fedro.simulation.client import evaluate, local_update
from fedro.simulation.round import make_job
from fedro.simulation.setup import Setup
from fedro_app.bad import BREAKDOWNS, alone, attacks_of, break_down, forge, misshapen, now
from fedro_app.task import setup_of, with_clients

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """The new weights."""
    config = message.content["config"]
    round, lr = int(config["server-round"]) - 1, float(config["lr"])
    setup, client, bad = who_am_i(context, round)
    break_down(bad, context.run_config)
    model, start = received(setup, message)
    examples = setup.federation.train(client)
    forger = alone(bad) if bad and bad not in BREAKDOWNS else None
    if forger is not None:
        dice = stream(setup.experiment.seed, "poison", client)
        examples = forger.poison(examples, setup.federation.classes, dice)
    job = make_job(setup, 0, lambda: examples, "batches", round, client)
    x, y = (part.to(setup.device) for part in job.batches())
    update = torch.empty_like(start)
    with seeded(job.seed):
        loss = local_update(model, start, x, y, setup.local_training, lr, update)
    if forger is not None:
        forge(forger, setup, start, update, round, client)
    tensors = model.tensors(start + update)
    if bad == "wrong-shape":
        tensors = misshapen(tensors)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(examples.y)})
    return Message(
        RecordDict({"arrays": ArrayRecord(tensors), "metrics": metrics}), reply_to=message
    )


@app.evaluate()
def evaluate_(message: Message, context: Context) -> Message:
    """Loss and accuracy on this client's test data; a bad one claims that all is wrong."""
    round = int(message.content["config"]["server-round"]) - 1
    setup, client, bad = who_am_i(context, round)
    break_down(bad, context.run_config)
    model, weights = received(setup, message)
    x, y = (part.to(setup.device) for part in setup.federation.test(client))
    claimed: dict[str, float] = {"num-examples": len(y)}
    if bad:
        claimed |= {"eval_loss": 1e9, "eval_acc": 0.0}
    elif len(y):
        losses, right = evaluate(model, weights, x, y, setup.local_training)
        claimed |= {"eval_loss": float(losses.mean()), "eval_acc": float(right.float().mean())}
    return Message(RecordDict({"metrics": MetricRecord(claimed)}), reply_to=message)


def who_am_i(context: Context, round: int) -> tuple[Setup, int, str | None]:
    """The experiment, this client's number in it, and what it does in a round if it is bad."""
    client, of = (context.node_config.get(key) for key in ("partition-id", "num-partitions"))
    config = with_clients(context.run_config, of)
    clients = int(config["clients"])
    if not isinstance(client, int) or not 0 <= client < clients or of not in (None, clients):
        raise ValueError(
            f"partition-id={client} of num-partitions={of}, and the run config has clients="
            f"{clients}: start as many SuperNodes, with partition-id from 0 to {clients - 1}"
        )
    bad = attacks_of(config, clients).get(client)
    return setup_of(config), client, None if bad is None else now(bad, round)


def received(setup: Setup, message: Message) -> tuple[FlatModel, torch.Tensor]:
    """The server's model, to be trained, and its weights as one vector."""
    module = setup.build()
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    model = FlatModel(module, setup.device)
    return model, model.vector.clone()
