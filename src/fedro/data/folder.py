"""A folder with one .npz file for each client; a client's inputs are read when needed."""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from fedro.data import validation
from fedro.data.federation import Array, Federation
from fedro.data.files import existing, in_natural_order
from fedro.data.partitions import split_train_test
from fedro.data.sources import register

EXPECTED = (
    "Need one .npz file for each client, with arrays x_train, y_train, x_test, y_test, "
    "or x, y (a fifth is then for testing), as numpy.savez('client_1.npz', x=x, y=y) writes them"
)
READING_ERRORS = (
    OSError,
    ValueError,
    EOFError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)
ArrayHeader = tuple[tuple[int, ...], Any]  # shape and type of an array in a file


@dataclass(frozen=True, eq=False)
class FileRows:
    """Rows of a client's file; the inputs are read when needed, the labels are in memory."""

    file: Path
    name: str  # of the inputs in the file
    format: validation.ArrayFormat
    y: Array
    index: Array

    def __len__(self) -> int:
        return len(self.index)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return self.format.shape

    def arrays(self) -> tuple[Array, Array]:
        """Read the inputs, and return them with the labels or targets."""
        if not len(self):
            return np.zeros((0, *self.format.shape), self.format.dtype), self.y[self.index]
        with _reading(self.file), zipfile.ZipFile(self.file) as archive:
            inputs = _read_array(archive, self.name)
        if inputs.shape != (len(self.y), *self.format.shape):
            raise ValueError(f"{self.file} has changed since it was opened: start again")
        x = validation.convert(inputs, self.format.dtype, f"{self.file}: {self.name}")
        return x[self.index], self.y[self.index]

    def labels(self) -> Array:
        """Return the labels or targets of the rows."""
        labels: Array = self.y[self.index]
        return labels


@register(has_owners=True)
def folder(
    clients: int | None,
    seed: int,
    *,
    path: str | None = None,
    task: validation.Task | None = None,
    classes: int | None = None,
) -> Federation:
    """Your own data: a folder with one .npz file for each client.

    The files hold the arrays x_train, y_train, x_test, y_test, or x, y of which a fifth is for
    testing. Clients come in the order of the file names, client_2 before client_10.

    Args:
        clients: Only the first so many files are opened.
        seed: Decides which fifth of x, y is for testing.
        path: The folder.
        task: "classify" or "regress", if the type of y does not tell: floating but whole numbers.
        classes: The number of classes; by default the largest label of these clients + 1. It is
            needed if these clients have no example of some class below the largest label.
    """
    if path is None:
        raise FileNotFoundError(f"folder needs a path: folder(path='…'). {EXPECTED}")
    place = existing(path, f"folder(path={path!r})", EXPECTED)
    files = in_natural_order(place.glob("*.npz"))[:clients]
    if not files:
        raise FileNotFoundError(f"{place.absolute()} holds no .npz file. {EXPECTED}")
    splits = [_open_client(file, seed, i, task) for i, file in enumerate(files)]
    rows = [part for pair in splits for part in pair]
    first = rows[0].format
    for part in rows:
        part.format.check_same(first, str(part.file))

    def say(option: str) -> str:
        return f"folder(path={path!r}, {option})"

    targets = [part.y for part in rows]
    validation.check_task_clear(targets, task, str(place), say)
    return Federation(
        f"folder {place.name}",
        splits,
        classes=validation.count_classes(targets, classes, str(place), say),
        scale=255.0 if first.dtype == np.uint8 else 1.0,
        owners=[file.stem for file in files],
    )


def _open_client(
    file: Path, seed: int, number: int, task: validation.Task | None
) -> tuple[FileRows, FileRows]:
    headers, labels = _read_headers(file)
    unsplit = "x" in headers and "x_train" not in headers
    wanted = ["x", "y"] if unsplit else ["x_train", "y_train", "x_test", "y_test"]
    if missing := [name for name in wanted if name not in headers]:
        raise ValueError(
            f"{file} has no array {', '.join(missing)}; it has "
            f"{', '.join(headers) or 'none'}. {EXPECTED}"
        )
    train = _open_rows(file, headers, labels, task, *wanted[:2])
    if not len(train):
        raise ValueError(f"{file}: no training samples; take the file out of the folder")
    if unsplit:
        rows, test_rows = split_train_test(len(train), 0.8, seed, number)
        return replace(train, index=rows), replace(train, index=test_rows)
    if headers["x_test"][0][:1] == (0,):  # of no samples, any shape will do
        return train, replace(train, index=np.arange(0))
    return train, _open_rows(file, headers, labels, task, *wanted[2:])


def _open_rows(
    file: Path,
    headers: dict[str, ArrayHeader],
    labels: dict[str, Array],
    task: validation.Task | None,
    x: str,
    y: str,
) -> FileRows:
    format = validation.array_format(headers[x], headers[y], f"{file}, {x} and {y}", task)
    targets = validation.convert_y(labels[y], format.target_dtype, f"{file}: {y}")
    return FileRows(file, x, format, targets, np.arange(len(targets)))


def _read_headers(file: Path) -> tuple[dict[str, ArrayHeader], dict[str, Array]]:
    """Read the shapes and types of a file's arrays, and the labels or targets themselves."""
    with _reading(file), zipfile.ZipFile(file) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        headers = {name: _read_header(archive, name) for name in names}
        labels = {name: _read_array(archive, name) for name in names if name.startswith("y")}
    return headers, labels


def _read_header(archive: zipfile.ZipFile, name: str) -> ArrayHeader:
    with archive.open(f"{name}.npy") as entry:
        read = npy.read_array_header_1_0 if npy.read_magic(entry) == (1, 0) else (
            npy.read_array_header_2_0
        )  # fmt: skip
        shape, _, dtype = read(entry)
    return shape, dtype


def _read_array(archive: zipfile.ZipFile, name: str) -> Array:
    with archive.open(f"{name}.npy") as entry:
        array: Array = npy.read_array(entry, allow_pickle=False)
    return array


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except READING_ERRORS as error:
        raise ValueError(f"{file} is damaged or not an .npz file ({error}). {EXPECTED}") from error
