"""CIFAR-10: small photographs of ten kinds of things."""

from pathlib import Path

import numpy as np
import torch

from fedro.data import files, parquet
from fedro.data.cache import Arrays, cached
from fedro.data.federation import ExampleRows, Federation
from fedro.data.sources import register

HUB_NAME = "uoft-cs/cifar10"
COLUMNS = ("img", "label")
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of red, green, blue, from 0 to 1
HOW_TO_GET = (
    "To get CIFAR-10: `pip install 'fedro[data]'` and it is downloaded when no path is given; or "
    "give cifar10(path='…') a folder of parquet files with the columns img, label whose names "
    "contain train or test; or put these into the folder $FEDRO_DATA"
)


@register(has_owners=False)
def cifar10(clients: int | None, seed: int, *, path: str | None = None) -> Federation:
    """Photographs of ten kinds of things, 3×32×32.

    Args:
        clients: Ignored: the examples belong to nobody.
        seed: Ignored: the files say which examples are for testing.
        path: A parquet file or a folder of them; by default $FEDRO_DATA, else a download.
    """
    paths = files.find("cifar10", path, files.parquet_files, HOW_TO_GET)
    arrays = cached("cifar10", paths, lambda: _read(paths))
    x, y, is_test = arrays["x"], arrays["y"], arrays["test"]
    train = ExampleRows(x, y, np.flatnonzero(~is_test))
    test = ExampleRows(x, y, np.flatnonzero(is_test))
    shift, scale = (torch.tensor(value).mul(255).reshape(3, 1, 1) for value in (MEAN, STD))
    return Federation("cifar10", [(train, test)], classes=10, shift=shift, scale=scale)


def _read(paths: list[Path]) -> Arrays:
    batches = (
        parquet.from_files(paths, COLUMNS, (), HOW_TO_GET)
        if paths
        else parquet.from_hub(HUB_NAME, COLUMNS, (), HOW_TO_GET)
    )
    x, y, test = [], [], []
    for batch in batches:
        if not batch.split:
            raise ValueError(f"{batch.where}: the name says neither train nor test. {HOW_TO_GET}")
        x.append(batch.images("img", "RGB", (32, 32)))
        y.append(batch.labels("label", 10))
        test.append(np.full(len(y[-1]), batch.split == "test"))
    if not x:
        raise ValueError(f"cifar10: the files hold no samples. {HOW_TO_GET}")
    is_test = np.concatenate(test)
    if is_test.all() or not is_test.any():
        there, missing = ("test", "train") if is_test.all() else ("train", "test")
        names = ", ".join(map(str, paths)) or HUB_NAME
        raise FileNotFoundError(
            f"cifar10: {names} has {there} files but no {missing} files. {HOW_TO_GET}"
        )
    return {"x": np.concatenate(x), "y": np.concatenate(y), "test": is_test}
