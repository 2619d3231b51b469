"""The public names: they are there, are documented completely, and their examples work."""

import dataclasses
import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from typing import Any

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
    process = subprocess.run(
        [sys.executable, "-c", code], timeout=60, capture_output=True, text=True
    )
    assert "pip install 'fedro[flower]'" in process.stderr


MODULES = [
    m.name for m in pkgutil.walk_packages(fedro.__path__, "fedro.") if "__main__" not in m.name
]
NEEDS = {"fedro.flower.": "flwr", "fedro.simulation.engines.ray_engine": "ray"}


@pytest.mark.parametrize("name", ["fedro", *MODULES])
def test_examples_in_docstrings(name: str) -> None:
    for module, package in NEEDS.items():
        if name.startswith(module):
            pytest.importorskip(package)
    failures, _ = doctest.testmod(importlib.import_module(name))
    assert failures == 0


# --- docstrings ------------------------------------------------------------------------------

ROOMS = ("fedro", "fedro.rules", "fedro.attacks", "fedro.data", "fedro.report")
DEPLOYMENT = ["fedro.flower.FedRo", "fedro.flower.TooFewRepliesError"]  # loaded only with Flower
SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example|Examples)::?$", re.M)


def public_names() -> list[str]:
    """All public functions and classes, each under its first name."""
    seen: set[int] = set()
    names = []
    for room in ROOMS:
        module = importlib.import_module(room)
        for name in module.__all__:
            value = getattr(module, name)
            documented = inspect.isclass(value) or (callable(value) and bool(value.__doc__))
            if documented and not name.isupper() and id(value) not in seen:
                seen.add(id(value))
                names.append(f"{room}.{name}")
    return [*names, *DEPLOYMENT]


def sections(doc: str) -> dict[str, str]:
    """The sections of a Google-style docstring, by their names."""
    _, *rest = SECTION.split(doc)
    return dict(zip(rest[::2], rest[1::2], strict=True))


def documented_items(body: str) -> list[str]:
    """The names that a section like Args describes."""
    return re.findall(r"^    (\*{0,2}\w+)(?: \([^)]*\))?: *\S", body, flags=re.M)


def parameters(function: Any) -> list[str]:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [
        stars.get(parameter.kind, "") + name
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in ("self", "cls") and name[0] != "_"
    ]


def members(kind: type) -> list[str] | None:
    """What the docstring of a class has to describe: its fields, or how it is made."""
    if hasattr(kind, "model_fields"):
        return None  # described in the fields themselves
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind) if field.name[0] != "_"]
    if hasattr(kind, "_fields"):
        return list(kind._fields)
    own = "__init__" in vars(kind) and not getattr(kind, "_is_protocol", False)
    return parameters(kind) if own else []


@pytest.mark.parametrize("name", public_names())
def test_docstring_is_complete(name: str) -> None:
    room, _, last = name.rpartition(".")
    if room == "fedro.flower":
        pytest.importorskip("flwr")
    value = getattr(importlib.import_module(room), last)
    doc = inspect.getdoc(value) or ""
    written = sections(doc)
    described = [
        item
        for section in ("Args", "Attributes")
        for item in documented_items(written.get(section, ""))
    ]
    if inspect.isclass(value):
        wanted = members(value)
        if wanted is None:
            assert all(field.description for field in value.model_fields.values())
        else:
            assert described == wanted, "Args or Attributes do not fit the class"
    else:
        assert described == parameters(value), "Args do not fit the signature"
        returned = inspect.signature(value).return_annotation
        if returned not in (None, "None", inspect.Signature.empty):
            assert "Returns" in written or "Yields" in written, "no Returns"
    if not (inspect.isclass(value) and issubclass(value, BaseException)):
        assert "Example" in written or "Examples" in written or ">>>" in doc, "no Example"
