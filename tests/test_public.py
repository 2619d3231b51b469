"""The public names."""

import doctest
import importlib
import pkgutil
import subprocess
import sys

import pytest

import fedro


def test_every_public_name_is_there() -> None:
    assert set(dir(fedro)) == set(fedro.__all__)
    for name in fedro.__all__:
        assert getattr(fedro, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'plann'"):
        _ = fedro.plann


def test_import_is_instant() -> None:
    code = "import fedro, sys; sys.exit('numpy' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_without_flower_its_extra_is_named() -> None:
    code = "import sys; sys.modules['flwr'] = None\nfrom fedro.flower import FedRo"
    done = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert "pip install 'fedro[flower]'" in done.stderr


MODULES = [
    m.name for m in pkgutil.walk_packages(fedro.__path__, "fedro.") if "__main__" not in m.name
]
ON_FLOWER = (
    "fedro.flower.",
    "fedro.simulation.engines.flower_engine",
    "fedro.simulation.engines.flower_node",
    "fedro.simulation.engines.flower_simulation",
)


@pytest.mark.parametrize("name", ["fedro", *MODULES])
def test_examples_in_docstrings(name: str) -> None:
    if name.startswith(ON_FLOWER):
        pytest.importorskip("flwr")
    failures, _ = doctest.testmod(importlib.import_module(name))
    assert failures == 0
