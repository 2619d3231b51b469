"""Every test has a cache of its own, and no data of the user's."""

import pytest

from fedro.data.cache import warn_once


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("FEDRO_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("FEDRO_DATA", raising=False)
    warn_once.cache_clear()
