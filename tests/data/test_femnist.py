"""FEMNIST from parquet files and from LEAF's JSON, real and damaged."""

import io
import json
import logging
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from fedro.data import make_federation
from sample_data import cifar_table, femnist_table, png, real, same, write_leaf, write_parquet

WRITERS = {"b": 30, "a": 20, "c": 1}


HOW = "To get FEMNIST: `pip install 'fedro.data.'`"


def replaced(table: pa.Table, column: str, values: list[object]) -> pa.Table:
    return table.set_column(table.schema.names.index(column), column, [values])


def test_femnist_parquet(tmp_path: Path) -> None:
    table = femnist_table(WRITERS)
    file = write_parquet(table, tmp_path / "train-00000-of-00001.parquet")
    federation = make_federation(f"femnist(path='{file}')")
    assert list(federation.owners) == ["b", "a", "c"]  # by first appearance
    assert (federation.classes, federation.shape) == (62, (1, 28, 28))
    assert (federation.shift, federation.scale) == (0.0, 255.0)
    assert federation.sizes.tolist() == [27, 18, 1]  # nine tenths, one at least
    assert federation.test_sizes.tolist() == [3, 2, 0]
    stored = {row["image"]["bytes"]: row["character"] for row in table.to_pylist()[:30]}
    decoded = sorted(
        (np.asarray(Image.open(io.BytesIO(data))).tobytes(), y) for data, y in stored.items()
    )
    train, test = federation.train(0), federation.test(0)
    x, y = (torch.cat(both) for both in zip(train, test, strict=True))
    found = sorted((a.numpy().tobytes(), int(b)) for a, b in zip(x, y, strict=True))
    assert found == decoded
    train.x.zero_()  # the file in the cache is not touched
    assert same(federation, make_federation(f"femnist(path='{tmp_path}')"))
    assert not same(federation, make_federation(f"femnist(path='{tmp_path}')", seed=1))


def test_femnist_that_says_what_is_for_testing(tmp_path: Path) -> None:
    table = femnist_table(WRITERS, split=True)
    write_parquet(table.slice(0, 25), tmp_path / "part_2.parquet")
    write_parquet(table.slice(25), tmp_path / "part_10.parquet")
    one, other = (make_federation(f"femnist(path='{tmp_path}')", seed=seed) for seed in (0, 1))
    assert one.sizes.tolist() == [24, 16, 1]
    assert list(one.owners) == ["b", "a", "c"]
    assert same(one, other)  # nothing is left to chance
    dealt = make_federation(f"femnist(path='{tmp_path}')", partition="iid")
    assert (dealt.clients, dealt.sizes.sum(), dealt.test_sizes.sum()) == (3, 41, 10)
    assert dealt.owners == ()


def test_femnist_in_files_named_train_and_test(tmp_path: Path) -> None:
    write_parquet(femnist_table({"a": 4, "b": 5}), tmp_path / "train.parquet")
    write_parquet(femnist_table({"b": 2, "a": 1}), tmp_path / "test.parquet")
    federation = make_federation(f"femnist(path='{tmp_path}')")
    assert dict(zip(federation.owners, federation.sizes.tolist(), strict=True)) == {"a": 4, "b": 5}
    assert federation.test_sizes.sum() == 3


def test_writers_without_training_samples_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = femnist_table(WRITERS)
    split = ["test"] * 30 + ["train"] * 21
    write_parquet(table.append_column("split", [split]), tmp_path / "a.parquet")
    federation = make_federation(f"femnist(path='{tmp_path}')")
    assert list(federation.owners) == ["a", "c"]
    make_federation(f"femnist(path='{tmp_path}')")
    said = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert said == ["femnist: left out 1 writer of 3 without training samples"]
    write_parquet(table.append_column("split", [["test"] * 51]), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=f"no writer has training samples. {HOW}"):
        make_federation(f"femnist(path='{tmp_path}')")


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("character", 62, "'character' holds the class number 62; the 62 classes .* from 0 to 61"),
        ("character", None, "column 'character' has 1 empty places"),
        ("split", "valid", "column 'split' holds 'valid'; need 'train' or 'test'"),
        ("image", {"bytes": b"", "path": "a.png"}, "row 3: the image is not in the file"),
        ("image", {"bytes": b"nonsense", "path": None}, "row 3: damaged image"),
        ("image", png(np.zeros((28, 29), np.uint8)), r"row 3: an image of size \(29, 28\)"),
    ],
)
def test_femnist_with_a_wrong_row(tmp_path: Path, column: str, value: object, message: str) -> None:
    table = femnist_table(WRITERS, split=True)
    values = table[column].to_pylist()
    values[3] = value
    write_parquet(replaced(table, column, values), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=message) as caught:
        make_federation(f"femnist(path='{tmp_path}')")
    assert str(tmp_path / "a.parquet") in str(caught.value)


def test_femnist_with_a_cut_off_image(tmp_path: Path) -> None:
    table = femnist_table(WRITERS)
    values = table["image"].to_pylist()
    values[0] = {"bytes": values[0]["bytes"][:200], "path": None}
    write_parquet(replaced(table, "image", values), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a.parquet, row 0: damaged image"):
        make_federation(f"femnist(path='{tmp_path}')")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (femnist_table(WRITERS).drop(["writer_id"]), "no column 'writer_id'; it has image, hsf_id"),
        (femnist_table(WRITERS).slice(0, 0), f"the files hold no samples. {HOW}"),
        (replaced(femnist_table({"a": 2}), "character", ["A", "b"]), "must hold class numbers"),
        (replaced(femnist_table({"a": 2}), "image", ["a.png", "b.png"]), "must hold {bytes, path}"),
    ],
)
def test_femnist_that_is_something_else(tmp_path: Path, table: pa.Table, message: str) -> None:
    file = write_parquet(table, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=message):
        make_federation(f"femnist(path='{file}')")


def test_femnist_cut_off(tmp_path: Path) -> None:
    file = write_parquet(femnist_table(WRITERS), tmp_path / "a.parquet")
    whole = file.read_bytes()
    for size in (0, 3, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=f"a.parquet is not a complete parquet file .*{HOW}"):
            make_federation(f"femnist(path='{file}')")
    middle = len(whole) // 2
    file.write_bytes(whole[:100] + bytes(middle - 100) + whole[middle:])  # the end is intact
    with pytest.raises(ValueError, match=r"a.parquet"):
        make_federation(f"femnist(path='{file}')")


def test_femnist_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=f"no data in .*{tmp_path.name}/data, .*{HOW}"):
        make_federation(f"femnist(path='{tmp_path}')")
    with pytest.raises(FileNotFoundError, match=rf"there is no .*/gone. {HOW}"):
        make_federation(f"femnist(path='{tmp_path}/gone')")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(FileNotFoundError, match=f"cannot be downloaded without .*datasets. {HOW}"):
        make_federation("femnist")
    monkeypatch.setenv("FEDRO_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"in \$FEDRO_DATA, and flwrlabs/femnist cannot"):
        make_federation("femnist")
    monkeypatch.setenv("FEDRO_DATA", f"{tmp_path}/gone")
    with pytest.raises(FileNotFoundError, match=f"FEDRO_DATA=.*there is no .*gone. {HOW}"):
        make_federation("femnist")
    (tmp_path / "gone").touch()
    with pytest.raises(FileNotFoundError, match=r"FEDRO_DATA=.*must be a folder"):
        make_federation("femnist")


def test_femnist_in_the_shared_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside other data, in a folder of its own, or as a copy of the hub's repository."""
    monkeypatch.setenv("FEDRO_DATA", str(tmp_path))
    write_parquet(cifar_table(4), tmp_path / "cifar10_train.parquet")
    write_parquet(femnist_table({"deep": 5}), tmp_path / "femnist" / "data" / "train.parquet")
    assert list(make_federation("femnist").owners) == ["deep"]
    write_leaf(tmp_path / "femnist", {"leaf": 3}, {"leaf": 1})
    assert list(make_federation("femnist").owners) == ["leaf"]
    write_parquet(femnist_table({"beside": 5}), tmp_path / "my_femnist.parquet")
    assert list(make_federation("femnist").owners) == ["beside"]
    assert list(make_federation(f"femnist(path='{tmp_path}')").owners) == ["beside"]


def test_leaf(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_leaf(tmp_path / "data", {"u": 5, "empty": 0, "v": 3}, {"v": 1, "u": 2, "late": 4})
    federation = make_federation(f"femnist(path='{tmp_path}')")
    assert list(federation.owners) == ["u", "v"]
    assert federation.sizes.tolist() == [5, 3]
    assert federation.test_sizes.tolist() == [2, 1]
    assert "left out 2 writers of 4" in caplog.text
    file = tmp_path / "data" / "train" / "all_data_0_train.json"
    content = json.loads(file.read_text())["user_data"]["u"]
    train = federation.train(0)
    assert train.y.tolist() == content["y"]
    assert (train.x.reshape(5, 784) / 255 - torch.tensor(content["x"])).abs().max() < 1e-4


def leaf_content(**change: object) -> str:
    user = {"x": [[0.5] * 784] * 2, "y": [1, 2], **change}
    return json.dumps({"users": ["u"], "num_samples": [2], "user_data": {"u": user}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (leaf_content()[:-50], f"is damaged or cut off .*{HOW}"),
        ("", "is damaged or cut off"),
        ("[]", "is not in LEAF's form"),
        ('{"users": ["u"], "user_data": {}}', "is not in LEAF's form .*KeyError.'u'"),
        (leaf_content(x=[[0.5] * 783] * 2), "user u: need a row of 784 numbers"),
        (leaf_content(x=[["ink"] * 784] * 2), "user u: need a row of 784 numbers"),
        (leaf_content(y=[1]), "user u: 2 images, but 1 labels"),
        (leaf_content(y=[1, 62]), "user u: label 62 is not from 0 to 61"),
        (leaf_content(x=[[1.5] * 784] * 2), "user u: pixels must be numbers from 0 to 1"),
        (leaf_content(x=[[float("nan")] * 784] * 2), "user u: pixels must be numbers from 0 to 1"),
    ],
)
def test_leaf_with_something_wrong(tmp_path: Path, text: str, message: str) -> None:
    write_leaf(tmp_path, {"u": 2}, {"u": 1})
    file = tmp_path / "train" / "all_data_0_train.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        make_federation(f"femnist(path='{tmp_path}')")
    assert str(file) in str(caught.value)


def test_leaf_by_one_file(tmp_path: Path) -> None:
    write_leaf(tmp_path, {"u": 2}, {"u": 1})
    with pytest.raises(ValueError, match="give the folder that holds LEAF's train/ and test/"):
        make_federation(f"femnist(path='{tmp_path}/train/all_data_0_train.json')")


def test_real_leaf_and_parquet_agree_pixel_by_pixel(tmp_path: Path) -> None:
    sample = make_federation(f"femnist(path='{real('leaf_sample')}')")
    table = pq.read_table(real("femnist_396_writers.parquet"))
    few = table.filter(pa.compute.is_in(table["writer_id"], pa.array(list(sample.owners))))
    write_parquet(few, tmp_path / "femnist.parquet")
    parquet = make_federation(f"femnist(path='{tmp_path}')")
    assert sample.clients == 6
    assert sample.sizes.tolist() == [155, 162, 164, 161, 137, 165]
    place = [list(parquet.owners).index(writer) for writer in sample.owners]
    for i, j in enumerate(place):
        for which in ("train", "test"):
            a, b = getattr(sample, which)(i), getattr(parquet, which)(j)
            assert torch.equal(a.x, b.x)
            assert torch.equal(a.y, b.y)
    assert sample.train(0).x[:, 0, 0, 0].float().median() == 255  # white paper


@pytest.mark.slow
def test_real_femnist() -> None:
    text = f"femnist(path='{real('femnist_396_writers.parquet')}')"
    federation = make_federation(text)
    assert (federation.clients, federation.sizes.sum()) == (396, 54_503)
    assert federation.test_sizes.sum() == 6_254
    assert federation.owners[0] == "f3313_11"
    assert np.concatenate([federation.train(i).y for i in range(396)]).max() == 61
    few = make_federation(text, clients=150)
    assert list(few.owners) == list(federation.owners[:150])
    start = time.perf_counter()
    second = make_federation(text)  # from the cache
    total = sum(len(second.train(i).x) + len(second.test(i).x) for i in range(second.clients))
    assert time.perf_counter() - start < 2
    assert total == 60_757
    assert same(federation, second)
