"""Data from the Hugging Face hub, and a hub that does not answer."""

import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from fedro.data import make_federation
from sample_data import cifar_table, femnist_table, same, write_parquet

WRITERS = {"b": 30, "a": 20, "c": 1}
HOW = "To get FEMNIST: `pip install 'fedro.data.'`"


class HubRows:
    """As much of datasets.Dataset as is used, with rows in Arrow's form only when asked."""

    def __init__(self, table: pa.Table, form: str = "") -> None:
        self.table, self.form = table, form

    def with_format(self, form: str) -> "HubRows":
        return HubRows(self.table, form)

    def iter(self, batch_size: int) -> Iterator[pa.Table]:
        assert self.form == "arrow"
        for start in range(0, len(self.table), batch_size):
            yield self.table.slice(start, batch_size)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    made = types.ModuleType("datasets")
    stored = {
        "flwrlabs/femnist": {"train": HubRows(femnist_table(WRITERS))},
        "uoft-cs/cifar10": {"train": HubRows(cifar_table(30)), "test": HubRows(cifar_table(10))},
    }
    made.load_dataset = stored.__getitem__  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", made)
    monkeypatch.setattr("fedro.data.parquet.ROWS_PER_BATCH", 16)
    return made


def test_hub(hub: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_parquet(femnist_table(WRITERS), tmp_path / "train.parquet")
    downloaded = make_federation("femnist")
    assert same(downloaded, make_federation(f"femnist(path='{file}')"))
    photos = make_federation("cifar10", clients=3)
    assert (photos.sizes.sum(), photos.test_sizes.sum()) == (30, 10)
    monkeypatch.setitem(sys.modules, "datasets", None)  # the second time needs no hub
    assert same(downloaded, make_federation("femnist"))


def test_hub_that_does_not_answer(hub: types.ModuleType) -> None:
    def unreachable(name: str) -> None:
        raise ConnectionError(f"Couldn't reach {name}\nand more")

    hub.load_dataset = unreachable  # type: ignore[attr-defined]
    with pytest.raises(FileNotFoundError, match=f"flwrlabs/femnist .Couldn't reach [^\n]*. {HOW}"):
        make_federation("femnist")
    del hub.load_dataset  # a folder of the user's that happens to be called datasets
    with pytest.raises(FileNotFoundError, match="without the package datasets"):
        make_federation("femnist")
