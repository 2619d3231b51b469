"""The example app and its run config."""

import tomllib
from pathlib import Path

APP = Path(__file__).parents[2] / "examples/flower"

CONFIG = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]


def run_config(**changes):
    """The app's run config with other values."""
    assert changes.keys() <= CONFIG.keys()
    return {**CONFIG, **changes}
