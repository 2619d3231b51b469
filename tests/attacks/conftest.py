"""Fixtures for tests of attacks."""

import pytest

from fedro import kernels
from fedro.attacks import ATTACKS


@pytest.fixture(params=["torch", pytest.param("compiled", marks=pytest.mark.slow)])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both back ends of the kernels: small inputs go to torch unless nothing is called small."""
    if request.param == "compiled":
        monkeypatch.setattr(kernels, "MIN_COMPILED_SIZE", 0)
    return request.param


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attacks registered in a test are gone after it."""
    monkeypatch.setattr(ATTACKS, "_entries", dict(ATTACKS._entries))
