"""A small model, data and jobs for tests of engines."""

import torch

from fedro.common.streams import stream
from fedro.models import build
from fedro.simulation.client import Recipe
from fedro.simulation.engines import Job, Setting

SHAPE, CLASSES, STEPS, BATCH = (1, 8, 8), 10, 4, 6

X = torch.from_numpy(stream(0, "test data").random((200, *SHAPE), dtype="float32"))

Y = torch.from_numpy(stream(0, "test labels").integers(CLASSES, size=200))


def job(row, data=(X, Y), restraint=0.0):
    def batches():
        index = torch.from_numpy(stream(1, "test batches", row).integers(200, size=(STEPS, BATCH)))
        return data[0][index], data[1][index]

    return Job(row, batches, 1000 + row, restraint)


def setting(name="mlp", rows=5, data=(X, Y), recipe=None, **options):
    shape = tuple(data[0].shape[1:])
    return Setting(
        build=lambda: build(name, shape, CLASSES, 0),
        recipe=recipe or Recipe(momentum=0.5, l2=1e-3),
        rows=rows,
        steps=STEPS,
        batch=BATCH,
        example=(data[0][0], data[1][0]),
        model=name,
        shape=shape,
        classes=CLASSES,
        **options,
    )
