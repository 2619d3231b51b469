"""A folder with one .npz file for each client; a client's inputs are read when asked for."""

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
from fedro.data.files import existing, in_order
from fedro.data.sources import register
from fedro.data.splitting import split

FORM = (
    "Need one .npz file for each client, with arrays x_train, y_train, x_test, y_test, "
    "or x, y (a fifth is then for testing), as numpy.savez('client_1.npz', x=x, y=y) writes them"
)
DAMAGED = (OSError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error)
Header = tuple[tuple[int, ...], Any]  # shape and type of an array in a file


@dataclass(frozen=True, eq=False)
class Filed:
    """Rows of an array in a client's file; the labels or targets are here already."""

    file: Path
    name: str  # of the inputs in the file
    form: validation.Form
    y: Array
    index: Array

    def __len__(self) -> int:
        return len(self.index)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return self.form.shape

    def arrays(self) -> tuple[Array, Array]:
        """The inputs, read now, and the labels."""
        if not len(self):
            return np.zeros((0, *self.form.shape), self.form.dtype), self.y[self.index]
        with _reading(self.file), zipfile.ZipFile(self.file) as archive:
            found = _array(archive, self.name)
        if found.shape != (len(self.y), *self.form.shape):
            raise ValueError(f"{self.file} has changed since it was opened: start again")
        x = validation.converted(found, self.form.dtype, f"{self.file}: {self.name}")
        return x[self.index], self.y[self.index]

    def labels(self) -> Array:
        """The labels of the rows."""
        labels: Array = self.y[self.index]
        return labels


@register(owners=True)
def folder(
    clients: int | None, seed: int, *, path: str | None = None, classes: int | None = None
) -> Federation:
    """Your own data: a folder with one .npz file for each client.

    The files hold x_train, y_train, x_test, y_test, or x, y of which a fifth is for testing.
    Clients come by file name, client_2 before client_10. ``classes`` is the largest label of
    these clients + 1 unless given.
    """
    if path is None:
        raise FileNotFoundError(f"folder needs a path: folder(path='…'). {FORM}")
    place = existing(path, f"folder(path={path!r})", FORM)
    files = in_order(place.glob("*.npz"))[:clients]
    if not files:
        raise FileNotFoundError(f"{place.absolute()} holds no .npz file. {FORM}")
    parts = [_client(file, seed, i) for i, file in enumerate(files)]
    first = parts[0][0].form
    for part in (part for pair in parts for part in pair):
        part.form.check_same(first, str(part.file))
    return Federation(
        f"folder {place.name}",
        parts,
        classes=validation.classes(
            [part.y for pair in parts for part in pair], classes, str(place)
        ),
        scale=255.0 if first.dtype == np.uint8 else 1.0,
        owners=[file.stem for file in files],
    )


def _client(file: Path, seed: int, number: int) -> tuple[Filed, Filed]:
    headers, labels = _contents(file)
    whole = "x" in headers and "x_train" not in headers
    wanted = ["x", "y"] if whole else ["x_train", "y_train", "x_test", "y_test"]
    if missing := [name for name in wanted if name not in headers]:
        raise ValueError(
            f"{file} has no array {', '.join(missing)}; it has "
            f"{', '.join(headers) or 'none'}. {FORM}"
        )
    train = _part(file, headers, labels, *wanted[:2])
    if not len(train):
        raise ValueError(f"{file}: no training samples; take the file out of the folder")
    if whole:
        a, b = split(len(train), 0.8, seed, number)
        return replace(train, index=a), replace(train, index=b)
    if headers["x_test"][0][:1] == (0,):  # of no samples, any shape will do
        return train, replace(train, index=np.arange(0))
    return train, _part(file, headers, labels, *wanted[2:])


def _part(
    file: Path, headers: dict[str, Header], labels: dict[str, Array], x: str, y: str
) -> Filed:
    form = validation.form(headers[x], headers[y], f"{file}, {x} and {y}")
    targets = validation.converted(labels[y], form.target_dtype, f"{file}: {y}")
    return Filed(file, x, form, targets, np.arange(len(targets)))


def _contents(file: Path) -> tuple[dict[str, Header], dict[str, Array]]:
    """Shapes and types of a file's arrays, and its labels or targets."""
    with _reading(file), zipfile.ZipFile(file) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        headers = {name: _header(archive, name) for name in names}
        labels = {name: _array(archive, name) for name in names if name.startswith("y")}
    return headers, labels


def _header(archive: zipfile.ZipFile, name: str) -> Header:
    with archive.open(f"{name}.npy") as entry:
        read = npy.read_array_header_1_0 if npy.read_magic(entry) == (1, 0) else (
            npy.read_array_header_2_0
        )  # fmt: skip
        shape, _, dtype = read(entry)
    return shape, dtype


def _array(archive: zipfile.ZipFile, name: str) -> Array:
    with archive.open(f"{name}.npy") as entry:
        found: Array = npy.read_array(entry, allow_pickle=False)
    return found


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGED as error:
        raise ValueError(f"{file} is damaged or not an .npz file ({error}). {FORM}") from error
