"""CIFAR-10 from parquet files."""

import io
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from fedro.data import make_federation
from sample_data import cifar_table, real, write_parquet


def test_cifar10(tmp_path: Path) -> None:
    train, test = cifar_table(60), cifar_table(20, seed=1)
    write_parquet(train, tmp_path / "plain_text" / "train-00000-of-00001.parquet")
    write_parquet(test, tmp_path / "plain_text" / "test-00000-of-00001.parquet")
    federation = make_federation(f"cifar10(path='{tmp_path}')", clients=3)
    assert (federation.clients, federation.classes, federation.shape) == (3, 10, (3, 32, 32))
    assert federation.sizes.tolist() == [20] * 3
    assert federation.test_sizes.sum() == 20
    assert isinstance(federation.shift, torch.Tensor)
    assert isinstance(federation.scale, torch.Tensor)
    assert federation.shift.shape == federation.scale.shape == (3, 1, 1)
    assert federation.shift.flatten().tolist() == pytest.approx([125.307, 122.961, 113.8575])
    wanted = sorted(
        np.asarray(Image.open(io.BytesIO(row["img"]["bytes"]))).transpose(2, 0, 1).tobytes()
        for row in train.to_pylist()
    )
    found = sorted(x.numpy().tobytes() for i in range(3) for x in federation.train(i).x)
    assert found == wanted


def test_cifar10_with_something_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = write_parquet(cifar_table(4), tmp_path / "train.parquet")
    with pytest.raises(FileNotFoundError, match=r"train.parquet has train files but no test files"):
        make_federation(f"cifar10(path='{tmp_path}')")
    train.rename(tmp_path / "data.parquet")
    with pytest.raises(ValueError, match=r"data.parquet: the name says neither train nor test"):
        make_federation(f"cifar10(path='{tmp_path}')")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(FileNotFoundError, match=r"uoft-cs/cifar10 cannot .*To get CIFAR-10: `pip"):
        make_federation("cifar10")


def test_real_cifar10_looks_as_its_statistics_say(tmp_path: Path) -> None:
    for part in ("train_20k", "test_5k"):
        table = pq.ParquetFile(real(f"cifar10_{part}.parquet")).read_row_group(0).slice(0, 500)
        write_parquet(table, tmp_path / f"cifar10_{part}.parquet")
    federation = make_federation(f"cifar10(path='{tmp_path}')", clients=1)
    x = (federation.train(0).x - federation.shift) / federation.scale
    assert x.mean((0, 2, 3)).abs().max() < 0.1
    assert (x.std((0, 2, 3)) - 1).abs().max() < 0.1


@pytest.mark.slow
def test_real_cifar10(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDRO_DATA", str(real("cifar10_train_20k.parquet").parent))
    federation = make_federation("cifar10", clients=20, partition="dirichlet(alpha=0.3)")
    assert (federation.sizes.sum(), federation.test_sizes.sum()) == (20_000, 5_000)
    assert federation.label_counts.sum(0).tolist() == [2_000] * 10
