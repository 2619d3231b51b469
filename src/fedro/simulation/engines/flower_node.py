"""The client app of a Flower node, which runs a job. It needs no state of the run."""

import json
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedro.common.streams import seeded
from fedro.common.user_code import UserCodeError
from fedro.models import FlatModel
from fedro.simulation.client import LocalTraining, local_update
from fedro.simulation.engines import Job, build_described
from fedro.simulation.engines.inline import one_thread

app = ClientApp()


def versions() -> dict[str, str]:
    """The versions that must be equal on server and node for the same bits."""
    return {package: version(package) for package in ("fedro", "torch")}


def job_content(model: Array, job: Job, description: str, lr: float) -> RecordDict:
    """A job as the content of a message; `description` is that of the model and its training."""
    x, y = job.batches()
    arrays = ArrayRecord({"model": model, "x": Array(x.numpy()), "y": Array(y.numpy())})
    config = ConfigRecord(
        {"description": description, "lr": lr, "seed": job.seed, "restraint": job.restraint}
    )
    return RecordDict({"job": arrays, "config": config})


@app.train()
def train(message: Message, context: Context) -> Message:
    """Run a job with one thread, so that the result is the same on every machine.

    If the user's model fails, the reply holds the error.
    """
    try:
        content = run_job(message)
    except UserCodeError as error:
        content = RecordDict({"user error": ConfigRecord({"error": json.dumps(error.as_dict())})})
    return Message(content, reply_to=message)


def run_job(message: Message) -> RecordDict:
    """The update and the loss of a job."""
    config: dict[str, Any] = dict(message.content.config_records["config"])
    arrays = message.content.array_records["job"]
    start, x, y = (torch.from_numpy(arrays[name].numpy()) for name in ("model", "x", "y"))
    with one_thread(), seeded(config["seed"]):
        flat, training = build_model(config["description"])
        out = torch.empty_like(start)
        loss = local_update(flat, start, x, y, training, config["lr"], out, config["restraint"])
    update, metrics = ArrayRecord({"update": Array(out.numpy())}), MetricRecord({"loss": loss})
    return RecordDict({"update": update, "loss": metrics})


@lru_cache(maxsize=1)
def build_model(text: str) -> tuple[FlatModel, LocalTraining]:
    """The model and the training of a description, built once in each process."""
    description = json.loads(text)
    if (expected := description["versions"]) != (installed := versions()):
        raise ValueError(
            f"this node has {installed}, the server {expected}: install the same versions"
        )
    return build_described(description)
