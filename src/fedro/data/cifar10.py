"""CIFAR-10: small photographs of ten kinds of things."""

from pathlib import Path

import numpy as np
import torch

from fedro.data import files, images
from fedro.data.cache import Arrays, cached
from fedro.data.federation import Federation, Rows
from fedro.data.sources import register

HUB = "uoft-cs/cifar10"
COLUMNS = ("img", "label")
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of red, green, blue, from 0 to 1
HOW = (
    "To get CIFAR-10: `pip install 'fedro[data]'` and it is downloaded when no path is given; or "
    "give cifar10(path='…') a folder of parquet files with the columns img, label whose names "
    "contain train or test; or put these into the folder $FEDRO_DATA"
)


@register(owners=False)
def cifar10(clients: int | None, seed: int, *, path: str | None = None) -> Federation:
    """Photographs of ten kinds of things, 3×32×32."""
    found = files.find("cifar10", path, files.parquet, HOW)
    arrays = cached("cifar10", found, lambda: _read(found))
    x, y, test = arrays["x"], arrays["y"], arrays["test"]
    whole = Rows(x, y, np.flatnonzero(~test)), Rows(x, y, np.flatnonzero(test))
    shift, scale = (torch.tensor(value).mul(255).reshape(3, 1, 1) for value in (MEAN, STD))
    return Federation("cifar10", [whole], classes=10, shift=shift, scale=scale)


def _read(found: list[Path]) -> Arrays:
    batches = (
        images.from_files(found, COLUMNS, (), HOW)
        if found
        else images.from_hub(HUB, COLUMNS, (), HOW)
    )
    x, y, test = [], [], []
    for batch in batches:
        if not batch.split:
            raise ValueError(f"{batch.where}: the name says neither train nor test. {HOW}")
        x.append(batch.images("img", "RGB", (32, 32)))
        y.append(batch.labels("label", 10))
        test.append(np.full(len(y[-1]), batch.split == "test"))
    if not x:
        raise ValueError(f"cifar10: the files hold no samples. {HOW}")
    which = np.concatenate(test)
    if which.all() or not which.any():
        there, missing = ("test", "train") if which.all() else ("train", "test")
        names = ", ".join(map(str, found)) or HUB
        raise FileNotFoundError(f"cifar10: {names} has {there} files but no {missing} files. {HOW}")
    return {"x": np.concatenate(x), "y": np.concatenate(y), "test": which}
