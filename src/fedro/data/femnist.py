"""FEMNIST: handwritten characters, a client for each writer.

The files are those of the hub (parquet) or those that LEAF writes: train/*.json and test/*.json,
with each writer's images as lists of numbers.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedro.common.text import counted
from fedro.data import files, parquet
from fedro.data.cache import Arrays, cached, warn_once
from fedro.data.federation import Array, ExampleRows, Federation
from fedro.data.partitions import group_rows, split_train_test
from fedro.data.sources import register

HUB_NAME = "flwrlabs/femnist"
CLASSES = 62  # 0–9, then A–Z = 10–35, then a–z = 36–61
SPLIT_CODES = {"train": 0, "test": 1}
UNKNOWN_SPLIT = 2
NEEDED, OPTIONAL = ("image", "writer_id", "character"), ("split",)
HOW_TO_GET = (
    "To get FEMNIST: `pip install 'fedro[data]'` and it is downloaded when no path is given; or "
    "give femnist(path='…') the folder that LEAF wrote (with train/ and test/) or parquet files "
    "with the columns image, writer_id, character; or put these into the folder $FEDRO_DATA"
)


@register(has_owners=True)
def femnist(clients: int | None, seed: int, *, path: str | None = None) -> Federation:
    """Handwritten digits and letters, 28×28, 62 classes; each writer is a client.

    Writers come in the order in which they first appear.

    Args:
        clients: Ignored: `make_federation` takes the first writers.
        seed: Where the files do not say which examples are for testing, the seed decides which
            tenth of each writer's is.
        path: A parquet file, a folder of them, or a folder that LEAF wrote; by default
            $FEDRO_DATA, else a download.
    """
    paths = files.find("femnist", path, _list_files, HOW_TO_GET)
    return _federation(cached("femnist", paths, lambda: _read(paths)), seed)


def _list_files(folder: Path, part: str) -> list[Path]:
    return ([] if part else _leaf_files(folder)) or files.parquet_files(folder, part)


def _read(paths: list[Path]) -> Arrays:
    if paths and paths[0].suffix == ".json":
        return _read_leaf(paths)
    if paths:
        return _read_batches(parquet.from_files(paths, NEEDED, OPTIONAL, HOW_TO_GET))
    return _read_batches(parquet.from_hub(HUB_NAME, NEEDED, OPTIONAL, HOW_TO_GET))


def _read_batches(batches: Iterable[parquet.ParquetBatch]) -> Arrays:
    writers: dict[str, int] = {}
    x, y, owner, split, split_in_name = [], [], [], [], []
    for batch in batches:
        names = map(str, batch.column("writer_id").to_pylist())
        owner.append(np.array([writers.setdefault(name, len(writers)) for name in names]))
        y.append(batch.labels("character", CLASSES))
        x.append(batch.images("image", "L", (28, 28)))
        split.append(_splits_in_table(batch))
        split_in_name.append(batch.split)
    if not x:
        raise ValueError(f"femnist: the files hold no samples. {HOW_TO_GET}")
    if {"train", "test"} == set(
        split_in_name
    ):  # train alone means nothing: so are the hub's called
        split = [
            np.full_like(codes, SPLIT_CODES[name]) if (codes == UNKNOWN_SPLIT).all() else codes
            for codes, name in zip(split, split_in_name, strict=True)
        ]
    return _joined(x, y, owner, split, list(writers))


def _splits_in_table(batch: parquet.ParquetBatch) -> Array:
    """Return for each example whether it is for training or testing, if the table says so."""
    if "split" not in batch.table.schema.names:
        return np.full(len(batch.table), UNKNOWN_SPLIT)
    names = batch.column("split").to_pylist()
    if wrong := set(names) - set(SPLIT_CODES):
        raise ValueError(
            f"{batch.where}: column 'split' holds {min(map(str, wrong))!r}; need 'train' or 'test'"
        )
    return np.array([SPLIT_CODES[name] for name in names])


def _federation(arrays: Arrays, seed: int) -> Federation:
    x, y, split, names = (arrays[key] for key in ("x", "y", "split", "names"))
    splits, owners = [], []
    for writer, rows in enumerate(group_rows(arrays["owner"], len(names))):
        if (split[rows] == UNKNOWN_SPLIT).all():
            chosen = split_train_test(len(rows), 0.9, seed, writer)
            train, test = (rows[part] for part in chosen)
        else:
            train, test = (rows[split[rows] == code] for code in SPLIT_CODES.values())
        if len(train):
            splits.append((ExampleRows(x, y, train), ExampleRows(x, y, test)))
            owners.append(str(names[writer]))
    if not splits:
        raise ValueError(f"femnist: no writer has training samples. {HOW_TO_GET}")
    if len(splits) < len(names):
        dropped = counted(len(names) - len(splits), "writer")
        warn_once(f"femnist: left out {dropped} of {len(names)} without training samples")
    return Federation("femnist", splits, CLASSES, owners=owners)


def _leaf_files(folder: Path) -> list[Path]:
    """List the files in the folders train/ and test/ that LEAF writes, if there are any in both."""
    train, test = (files.in_natural_order((folder / name).glob("*.json")) for name in SPLIT_CODES)
    return [*train, *test] if train and test else []


def _read_leaf(paths: Sequence[Path]) -> Arrays:
    """Decode LEAF's files; pixels from 0..1 (white paper is 1) become 0..255."""
    if {file.parent.name for file in paths} != set(SPLIT_CODES):
        raise ValueError(
            f"{paths[0]}: give the folder that holds LEAF's train/ and test/. {HOW_TO_GET}"
        )
    writers: dict[str, int] = {}
    x, y, owner, split = [], [], [], []
    for file in paths:
        for user, pixels, labels in _leaf_users(file):
            x.append(pixels)
            y.append(labels)
            owner.append(np.full(len(labels), writers.setdefault(user, len(writers))))
            split.append(np.full(len(labels), SPLIT_CODES[file.parent.name]))
    if not x:
        raise ValueError(f"{paths[0].parent}: there are no users. {HOW_TO_GET}")
    return _joined(x, y, owner, split, list(writers))


def _joined(
    x: list[Array], y: list[Array], owner: list[Array], split: list[Array], names: list[str]
) -> Arrays:
    """Join the arrays for the cache: pixels, labels, writers, and train or test."""
    return {
        "x": np.concatenate(x),
        "y": np.concatenate(y).astype(np.int64),
        "owner": np.concatenate(owner).astype(np.int32),
        "split": np.concatenate(split).astype(np.uint8),
        "names": np.array(names),
    }


def _leaf_users(file: Path) -> Iterator[tuple[str, Array, Array]]:
    try:
        with file.open(encoding="utf-8") as opened:
            content = json.load(opened)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{file} is damaged or cut off ({error}). {HOW_TO_GET}") from error
    try:
        for user in content["users"]:
            if not isinstance(user, str):
                raise TypeError(f"{user!r} is not the name of a user")
            data = content["user_data"][user]
            yield user, *_leaf_samples(data["x"], data["y"], f"{file}, user {user}")
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{file} is not in LEAF's form (users, num_samples, user_data.…x, .y): {error!r}. "
            f"{HOW_TO_GET}"
        ) from error


def _leaf_samples(x: Any, y: Any, where: str) -> tuple[Array, Array]:
    try:
        pixels = np.asarray(x, dtype=np.float64).reshape(-1, 1, 28, 28)
        labels = np.asarray(y, dtype=np.int64).reshape(-1)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{where}: need a row of 784 numbers for each image, and labels ({error})"
        ) from None
    if len(pixels) != len(labels):
        raise ValueError(f"{where}: {len(pixels)} images, but {len(labels)} labels")
    if not ((pixels >= 0) & (pixels <= 1)).all():
        raise ValueError(f"{where}: pixels must be numbers from 0 to 1")
    if len(labels) and not (labels.min() >= 0 and labels.max() < CLASSES):
        wrong = labels[(labels < 0) | (labels >= CLASSES)][0]
        raise ValueError(f"{where}: label {wrong} is not from 0 to {CLASSES - 1}")
    return np.rint(pixels * 255).astype(np.uint8), labels
