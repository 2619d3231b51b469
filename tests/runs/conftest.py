"""Tests of the run folder do not wait for the disk, and leave no file open."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a power cut can tell whether the disk was waited for."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "a"


@pytest.fixture(autouse=True)
def _nothing_left_open() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    yield
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before
