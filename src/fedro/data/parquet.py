"""Read images and labels from parquet files, or from the Hugging Face hub."""

import importlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedro.data.federation import Array

ROWS_PER_BATCH = 4096


class ParquetBatch(NamedTuple):
    """Some rows of a table, and where they come from."""

    where: str  # the file
    split: str  # "train" or "test" if the file's name says so, else ""
    start: int  # the number of the first row
    table: Any  # pyarrow

    def column(self, name: str) -> Any:
        """Return a column that has no empty places."""
        column = self.table.column(name)
        if column.null_count:
            raise ValueError(f"{self.where}: column {name!r} has {column.null_count} empty places")
        return column

    def labels(self, name: str, classes: int) -> Array:
        """Return a column of class numbers."""
        numbers: Array = np.asarray(self.column(name))
        if numbers.dtype.kind not in "iu":
            raise ValueError(f"{self.where}: column {name!r} must hold class numbers")
        if numbers.min() < 0 or numbers.max() >= classes:
            wrong = numbers[(numbers < 0) | (numbers >= classes)][0]
            raise ValueError(
                f"{self.where}: column {name!r} holds the class number {wrong}; "
                f"the {classes} classes have numbers from 0 to {classes - 1}"
            )
        return numbers.astype(np.int64)

    def images(self, name: str, mode: str, size: tuple[int, int]) -> Array:
        """Decode a column of images to (m, C, H, W) of uint8."""
        compute = importlib.import_module("pyarrow.compute")
        try:
            encoded = compute.struct_field(self.column(name), "bytes").to_pylist()
        except (TypeError, ValueError, NotImplementedError) as error:
            raise ValueError(f"{self.where}: column {name!r} must hold {{bytes, path}}") from error
        pixels = [
            _pixels(data, mode, size, f"{self.where}, row {self.start + i}")
            for i, data in enumerate(encoded)
        ]
        flat = np.frombuffer(b"".join(pixels), dtype=np.uint8)
        channels_last = flat.reshape(len(pixels), size[1], size[0], -1)
        return np.ascontiguousarray(channels_last.transpose(0, 3, 1, 2))


def _pixels(data: bytes | None, mode: str, size: tuple[int, int], where: str) -> bytes:
    from PIL import Image

    if not data:
        raise ValueError(f"{where}: the image is not in the file, only its path")
    try:
        image: Image.Image = Image.open(io.BytesIO(data), formats=("PNG", "JPEG"))
        pixels = (image if image.mode == mode else image.convert(mode)).tobytes()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{where}: damaged image ({error})") from error
    if image.size != size:
        raise ValueError(f"{where}: an image of size {image.size}; all must have {size}")
    return pixels


def from_files(
    files: Sequence[Path], needed: Sequence[str], optional: Sequence[str], how_to_get: str
) -> Iterator[ParquetBatch]:
    """Read parquet files, some rows at a time."""
    pyarrow, parquet = map(importlib.import_module, ("pyarrow", "pyarrow.parquet"))
    for file in files:
        start = 0
        try:
            with parquet.ParquetFile(file) as opened:
                columns = _columns(
                    opened.schema_arrow.names, needed, optional, f"{file}", how_to_get
                )
                for table in opened.iter_batches(batch_size=ROWS_PER_BATCH, columns=columns):
                    if len(table):
                        yield ParquetBatch(str(file), split_in_name(file.name), start, table)
                    start += len(table)
        except (OSError, pyarrow.ArrowException) as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(
                f"{file} is not a complete parquet file ({reason}). {how_to_get}"
            ) from error


def from_hub(
    repository: str, needed: Sequence[str], optional: Sequence[str], how_to_get: str
) -> Iterator[ParquetBatch]:
    """Read a dataset of the Hugging Face hub, some rows at a time; it is downloaded if needed."""
    try:
        load_dataset = importlib.import_module("datasets").load_dataset
    except (ImportError, AttributeError):
        raise FileNotFoundError(
            f"no files were given or found in $FEDRO_DATA, and {repository} cannot be downloaded "
            f"without the package datasets. {how_to_get}"
        ) from None
    try:
        splits = load_dataset(repository)
    except Exception as error:  # whatever goes wrong between here and the hub
        reason = str(error).partition("\n")[0]
        raise FileNotFoundError(f"cannot download {repository} ({reason}). {how_to_get}") from error
    for split, rows in splits.items():
        start, where = 0, f"{repository} ({split})"
        for table in rows.with_format("arrow").iter(batch_size=ROWS_PER_BATCH):
            columns = _columns(table.schema.names, needed, optional, where, how_to_get)
            yield ParquetBatch(where, split, start, table.select(columns))
            start += len(table)


def _columns(
    names: Sequence[str],
    needed: Sequence[str],
    optional: Sequence[str],
    where: str,
    how_to_get: str,
) -> list[str]:
    for name in needed:
        if name not in names:
            raise ValueError(
                f"{where} has no column {name!r}; it has {', '.join(names)}. {how_to_get}"
            )
    return [*needed, *(name for name in optional if name in names)]


def split_in_name(name: str) -> str:
    """Return ``"train"`` or ``"test"`` if a file's name contains it, else an empty text."""
    return next((split for split in ("train", "test") if split in name.lower()), "")
