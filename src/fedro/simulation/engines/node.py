"""What a node of Flower's does with a job. It needs the code, and nothing of the run."""

import json
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedro.common.streams import seeded
from fedro.models import FlatModel
from fedro.simulation.client import Recipe, local_update
from fedro.simulation.engines import Job
from fedro.simulation.engines.inline import one_thread
from fedro.simulation.engines.portable import built

app = ClientApp()


def versions() -> dict[str, str]:
    """Of what must be the same at both ends for the same bits."""
    return {package: version(package) for package in ("fedro", "torch")}


def order(model: Array, job: Job, work: str, lr: float) -> RecordDict:
    """A job as the content of a message."""
    x, y = job.batches()
    arrays = ArrayRecord({"model": model, "x": Array(x.numpy()), "y": Array(y.numpy())})
    how = ConfigRecord({"work": work, "lr": lr, "seed": job.seed, "restraint": job.restraint})
    return RecordDict({"job": arrays, "how": how})


@app.train()
def train(message: Message, context: Context) -> Message:
    """K steps, and the change they made; with one thread, so that it is the same everywhere."""
    how: dict[str, Any] = dict(message.content.config_records["how"])
    arrays = message.content.array_records["job"]
    start, x, y = (torch.from_numpy(arrays[name].numpy()) for name in ("model", "x", "y"))
    with one_thread(), seeded(how["seed"]):
        flat, recipe = prepared(how["work"])
        update = torch.empty_like(start)
        loss = local_update(flat, start, x, y, recipe, how["lr"], update, how["restraint"])
    changed, costs = ArrayRecord({"update": Array(update.numpy())}), MetricRecord({"loss": loss})
    return Message(RecordDict({"update": changed, "loss": costs}), reply_to=message)


@lru_cache(maxsize=1)
def prepared(work: str) -> tuple[FlatModel, Recipe]:
    """The model and the recipe, made once in each process."""
    told = json.loads(work)
    if (there := told["versions"]) != (here := versions()):
        raise ValueError(f"this node has {here}, the server {there}: install the same")
    return built(told)
