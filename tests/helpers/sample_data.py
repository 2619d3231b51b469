"""Small files in the forms that the sources read, and where the real ones are."""

import io
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fedro.data import Federation

REAL = Path(os.environ.get("FEDRO_DATA") or Path(__file__).parents[3] / "shared" / "data")


def real(name: str) -> Path:
    """A real file, or the test is skipped."""
    path = REAL / name
    if not path.exists():
        pytest.skip(f"there is no real data in {path} (set FEDRO_DATA to its folder)")
    return path


def png(pixels: np.ndarray) -> dict[str, object]:
    """An image as the hub's parquet files hold it."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


def femnist_table(writers: dict[str, int], split: bool = False, size: int = 28) -> pa.Table:
    """Random characters, so many of each writer; every fifth is for testing if split."""
    rng = np.random.default_rng(0)
    names = [name for name, samples in writers.items() for _ in range(samples)]
    columns = {
        "image": [png(rng.integers(0, 256, (size, size), dtype=np.uint8)) for _ in names],
        "writer_id": names,
        "hsf_id": [0] * len(names),
        "character": rng.integers(0, 62, len(names)),
    }
    if split:
        columns["split"] = ["test" if i % 5 == 4 else "train" for i in range(len(names))]
    return pa.table(columns)


def cifar_table(samples: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (samples, 32, 32, 3), dtype=np.uint8)
    return pa.table({"img": [png(p) for p in pixels], "label": np.arange(samples) % 10})


def write_leaf(folder: Path, train: dict[str, int], test: dict[str, int]) -> None:
    """So many images of each user, in LEAF's form."""
    rng = np.random.default_rng(0)
    for part, users in (("train", train), ("test", test)):
        (folder / part).mkdir(parents=True)
        content = {
            "users": list(users),
            "num_samples": list(users.values()),
            "user_data": {
                user: {
                    "x": (rng.integers(0, 256, (m, 784)) / 255).round(4).tolist(),
                    "y": rng.integers(0, 62, m).tolist(),
                }
                for user, m in users.items()
            },
        }
        (folder / part / f"all_data_0_{part}.json").write_text(json.dumps(content))


def write_parquet(table: pa.Table, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


def everything(federation: Federation) -> list[np.ndarray]:
    """All of a federation's arrays."""
    clients = range(federation.clients)
    parts = [part for i in clients for part in (federation.train(i), federation.test(i))]
    return [tensor.numpy() for part in parts for tensor in part]


def same(one: Federation, other: Federation) -> bool:
    pairs = zip(everything(one), everything(other), strict=True)
    return one.clients == other.clients and all(np.array_equal(a, b) for a, b in pairs)
