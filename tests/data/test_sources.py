"""The table of sources, and what `make_federation` refuses."""

from typing import Any

import pytest

from fedro.data import SOURCES, make_federation


def test_table() -> None:
    assert sorted(SOURCES) == ["cifar10", "digits", "femnist", "folder", "synthetic"]
    for source in SOURCES.values():
        assert source.summary.endswith(".")
    assert list(SOURCES["synthetic"].options) == ["dim", "samples", "sigma", "zeta"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("digit", {}, "unknown data source 'digit': did you mean 'digits'"),
        ("digits | digits", {}, "give one data source, not 2"),
        ("digits(size=3)", {}, "unknown option of digits 'size'"),
        ("synthetic(dim=1.5)", {}, "dim must be of type int"),
        ("digits", {"partition": "dirichlet"}, r"dirichlet needs alpha=…"),
        ("digits", {"partition": "dirichlt(alpha=1)"}, "unknown partition .* 'dirichlet'"),
        ("digits", {"partition": "iid(alpha=1)"}, "unknown option of iid 'alpha'"),
        ("digits", {"partition": "owner"}, "digits belong to nobody; choose one of iid, dirichlet"),
        ("digits", {"clients": 0}, "clients=0: must be at least 1"),
        ("digits", {"seed": -1}, "seed=-1: must be at least 0"),
        ("synthetic(sigma=-1)", {}, "sigma=-1: need from 0"),
        ("synthetic(samples=1)", {}, "samples=1: one sample is its own mean; need 2, or sigma=0"),
        ("synthetic", {"clients": 1}, "clients=1: one client is its own mean; need 2, or zeta=0"),
        ("folder", {}, "folder needs a path: folder.path='…'.*x_train, y_train"),
        ("folder(path='nowhere')", {}, "folder.path='nowhere'.: there is no .*/nowhere"),
    ],
)
def test_wrong_texts(text: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        make_federation(text, **options)
