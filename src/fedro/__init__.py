"""Byzantine-robust federated learning: plan, simulate under attack, deploy.

>>> import fedro
>>> fedro.plan(clients=150, byzantine=15, rounds=500).sampled
27
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedro.planning import Outlook, Plan, plan

__version__ = "0.1.0"

_HOME = {"Outlook": "planning", "Plan": "planning", "plan": "planning"}
__all__ = ["Outlook", "Plan", "__version__", "plan"]


def __getattr__(name: str) -> Any:
    """Import a public name's module when the name is first used (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'fedro' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"fedro.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
