"""A small model, data and jobs for tests of engines."""

import os
import signal

import torch
from torch import nn

from fedro.common.streams import stream
from fedro.models import build
from fedro.simulation.client import LocalTraining
from fedro.simulation.engines import EngineConfig, Job

SHAPE, CLASSES, STEPS, BATCH = (1, 8, 8), 10, 4, 6

X = torch.from_numpy(stream(0, "test data").random((200, *SHAPE), dtype="float32"))

Y = torch.from_numpy(stream(0, "test labels").integers(CLASSES, size=200))


def make_job(row, data=(X, Y), restraint=0.0):
    def batches():
        index = torch.from_numpy(stream(1, "test batches", row).integers(200, size=(STEPS, BATCH)))
        return data[0][index], data[1][index]

    return Job(row, batches, 1000 + row, restraint)


def make_config(name="mlp", rows=5, data=(X, Y), training=None, **options):
    shape = tuple(data[0].shape[1:])
    return EngineConfig(
        build=lambda: build(name, shape, CLASSES, 0),
        training=training or LocalTraining(momentum=0.5, l2=1e-3),
        rows=rows,
        steps=STEPS,
        batch=BATCH,
        example=(data[0][0], data[1][0]),
        model=name,
        shape=shape,
        classes=CLASSES,
        **options,
    )


# Models that other processes build by name, as engine_cases:half_frozen.


def half_frozen(shape, classes):
    module = build("mlp(hidden=32)", shape, classes)
    module[1].requires_grad_(False)
    return module


def with_statistics(shape, classes):
    layers = [nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8)]
    return nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(8, classes))


class Unreliable(nn.Module):
    """Prints, and fails or kills its process if the file $TEST_ENGINE_COMMAND says so."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, CLASSES)

    def forward(self, x):
        print("a user's print")
        if (command := os.environ.get("TEST_ENGINE_COMMAND")) and os.path.exists(command):
            with open(command) as file:
                words = file.read().split()
            if words[0] == "once":
                os.unlink(command)
            if words[-1] == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ZeroDivisionError("the model's own error")
        return self.layer(x.flatten(1))


class Odd(nn.Module):
    """A classifier of digits with an odd layer inside."""

    def __init__(self, odd):
        super().__init__()
        self.odd, self.last = odd, nn.Linear(64, 10)

    def forward(self, x):
        return self.last(self.odd(x.flatten(1)))


class Counting(nn.Module):
    """Its frozen parameter and its integer buffer change in training."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Parameter(torch.zeros(64), requires_grad=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if self.training:
            self.seen += 1
            self.frozen.data += 0.1 * self.seen
        return x + self.frozen


def counting():
    return Odd(nn.Sequential(Counting(), nn.BatchNorm1d(64, momentum=None)))
