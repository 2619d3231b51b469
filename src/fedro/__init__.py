"""Byzantine-robust federated learning: plan, simulate under attack, deploy.

>>> import fedro
>>> fedro.plan(clients=150, byzantine=15, rounds=500).sampled
27
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedro.kappa_search import Found, search_kappa
    from fedro.planning import Outlook, Plan, plan
    from fedro.rules import RULES, Rule, parse_rule

__version__ = "0.1.0"

_HOME = {
    "Found": "kappa_search",
    "Outlook": "planning",
    "Plan": "planning",
    "RULES": "rules",
    "Rule": "rules",
    "parse_rule": "rules",
    "plan": "planning",
    "search_kappa": "kappa_search",
}
__all__ = [
    "RULES",
    "Found",
    "Outlook",
    "Plan",
    "Rule",
    "__version__",
    "parse_rule",
    "plan",
    "search_kappa",
]


def __getattr__(name: str) -> Any:
    """Import a public name's module when the name is first used (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'fedro' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"fedro.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
