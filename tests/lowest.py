"""The lowest version that pyproject.toml allows of every dependency, as constraints for pip.

python tests/lowest.py > lowest.txt

Torch is left out: its lower bound is declared, not tested.
"""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lowest() -> list[str]:
    """One line for each dependency of the package and of its tests."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["data"], *extras["dev"]]
    found = [re.fullmatch(r"([\w-]+)(?:\[.*\])?>=([\d.]+).*", text) for text in wanted]
    missing = [text for text, match in zip(wanted, found, strict=True) if match is None]
    if missing:
        raise ValueError(f"without a lower bound: {', '.join(missing)}")
    pins = {match[1]: match[2] for match in found if match is not None}
    return sorted(f"{name}=={version}" for name, version in pins.items() if name != "torch")


if __name__ == "__main__":
    print("\n".join(lowest()))
