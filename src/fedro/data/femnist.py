"""FEMNIST: handwritten characters, a client for each writer."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fedro.common.text import counted
from fedro.data import files, images, leaf
from fedro.data.cache import Arrays, cached
from fedro.data.federation import Array, Federation, Rows, groups
from fedro.data.notes import say_once
from fedro.data.sources import register
from fedro.data.splitting import split

HUB = "flwrlabs/femnist"
NEEDED, OPTIONAL = ("image", "writer_id", "character"), ("split",)
HOW = (
    "To get FEMNIST: `pip install 'fedro[data]'` and it is downloaded when no path is given; or "
    "give femnist(path='…') the folder that LEAF wrote (with train/ and test/) or parquet files "
    "with the columns image, writer_id, character; or put these into the folder $FEDRO_DATA"
)


@register(owners=True)
def femnist(clients: int | None, seed: int, *, path: str | None = None) -> Federation:
    """Handwritten digits and letters, 28×28, 62 classes; each writer is a client.

    Writers come in the order in which they first appear. Where the files do not say which samples
    are for testing, a tenth of each writer's is drawn by the seed.
    """
    found = files.find("femnist", path, _look, HOW)
    return _federation(cached("femnist", found, lambda: _read(found)), seed)


def _look(folder: Path, part: str) -> list[Path]:
    return ([] if part else leaf.look(folder)) or files.parquet(folder, part)


def _read(found: list[Path]) -> Arrays:
    if found and found[0].suffix == ".json":
        return leaf.read(found, HOW)
    if found:
        return _collected(images.from_files(found, NEEDED, OPTIONAL, HOW))
    return _collected(images.from_hub(HUB, NEEDED, OPTIONAL, HOW))


def _collected(batches: Iterable[images.Batch]) -> Arrays:
    writers: dict[str, int] = {}
    x, y, owner, part, named = [], [], [], [], []
    for batch in batches:
        names = map(str, batch.column("writer_id").to_pylist())
        owner.append(np.array([writers.setdefault(name, len(writers)) for name in names]))
        y.append(batch.labels("character", leaf.CLASSES))
        x.append(batch.images("image", "L", (28, 28)))
        part.append(_part(batch))
        named.append(batch.split)
    if not x:
        raise ValueError(f"femnist: the files hold no samples. {HOW}")
    if {"train", "test"} == set(named):  # one kind alone: the hub's files are all called train
        part = [
            np.full_like(codes, leaf.PARTS[name]) if (codes == leaf.UNKNOWN).all() else codes
            for codes, name in zip(part, named, strict=True)
        ]
    return leaf.joined(x, y, owner, part, list(writers))


def _part(batch: images.Batch) -> Array:
    """Which samples are for training and which for testing, if the table says so."""
    if "split" not in batch.table.schema.names:
        return np.full(len(batch.table), leaf.UNKNOWN)
    said = batch.column("split").to_pylist()
    if wrong := set(said) - set(leaf.PARTS):
        raise ValueError(
            f"{batch.where}: column 'split' holds {min(map(str, wrong))!r}; need 'train' or 'test'"
        )
    return np.array([leaf.PARTS[word] for word in said])


def _federation(arrays: Arrays, seed: int) -> Federation:
    x, y, part, names = (arrays[key] for key in ("x", "y", "part", "names"))
    parts, owners = [], []
    for writer, rows in enumerate(groups(arrays["owner"], len(names))):
        if (part[rows] == leaf.UNKNOWN).all():
            train, test = (rows[chosen] for chosen in split(len(rows), 0.9, seed, writer))
        else:
            train, test = (rows[part[rows] == leaf.PARTS[word]] for word in ("train", "test"))
        if len(train):
            parts.append((Rows(x, y, train), Rows(x, y, test)))
            owners.append(str(names[writer]))
    if not parts:
        raise ValueError(f"femnist: no writer has training samples. {HOW}")
    if len(parts) < len(names):
        dropped = counted(len(names) - len(parts), "writer")
        say_once(f"femnist: left out {dropped} of {len(names)} without training samples")
    return Federation("femnist", parts, leaf.CLASSES, owners=owners)
