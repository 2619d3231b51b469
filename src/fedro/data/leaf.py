"""FEMNIST as LEAF writes it: train/*.json and test/*.json with each user's images as numbers."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedro.data.cache import Arrays
from fedro.data.federation import Array
from fedro.data.files import in_order

CLASSES = 62  # 0–9, then A–Z = 10–35, then a–z = 36–61
PARTS = {"train": 0, "test": 1}
UNKNOWN = 2


def look(folder: Path) -> list[Path]:
    """The files of LEAF's train and test folders, if both are there."""
    found = [in_order((folder / part).glob("*.json")) for part in PARTS]
    return [*found[0], *found[1]] if all(found) else []


def read(files: Sequence[Path], how: str) -> Arrays:
    """Everything in LEAF's files, as arrays; pixels from 0..1 (white paper is 1) to 0..255."""
    if {file.parent.name for file in files} != set(PARTS):
        raise ValueError(f"{files[0]}: give the folder that holds LEAF's train/ and test/. {how}")
    writers: dict[str, int] = {}
    x, y, owner, part = [], [], [], []
    for file in files:
        for user, pixels, labels in _users(file, how):
            x.append(pixels)
            y.append(labels)
            owner.append(np.full(len(labels), writers.setdefault(user, len(writers))))
            part.append(np.full(len(labels), PARTS[file.parent.name]))
    if not x:
        raise ValueError(f"{files[0].parent}: there are no users. {how}")
    return joined(x, y, owner, part, list(writers))


def joined(
    x: list[Array], y: list[Array], owner: list[Array], part: list[Array], names: list[str]
) -> Arrays:
    """The arrays that the cache holds: pixels, labels, whose they are and what they are for."""
    return {
        "x": np.concatenate(x),
        "y": np.concatenate(y).astype(np.int64),
        "owner": np.concatenate(owner).astype(np.int32),
        "part": np.concatenate(part).astype(np.uint8),
        "names": np.array(names),
    }


def _users(file: Path, how: str) -> Iterator[tuple[str, Array, Array]]:
    try:
        with file.open(encoding="utf-8") as opened:
            content = json.load(opened)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{file} is damaged or cut off ({error}). {how}") from error
    try:
        for user in content["users"]:
            if not isinstance(user, str):
                raise TypeError(f"{user!r} is not the name of a user")
            data = content["user_data"][user]
            yield user, *_samples(data["x"], data["y"], f"{file}, user {user}")
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{file} is not in LEAF's form (users, num_samples, user_data.…x, .y): {error!r}. {how}"
        ) from error


def _samples(x: Any, y: Any, where: str) -> tuple[Array, Array]:
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
