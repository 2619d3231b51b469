"""FedRo as a Flower strategy: train with real clients, with the plan and rule of a simulation.

::

    from fedro.flower import FedRo

    plan = fedro.plan(clients=150, byzantine=15, rounds=500)
    strategy = FedRo(plan=plan, rule="nnm | trimmed_mean", folder="runs/flower")
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=500)
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedro.flower.flat_form import flat_arrays
    from fedro.flower.strategy import FedRo, TooFewRepliesError

MODULES = {"FedRo": "strategy", "TooFewRepliesError": "strategy", "flat_arrays": "flat_form"}
__all__ = ["FedRo", "TooFewRepliesError", "flat_arrays"]


def __getattr__(name: str) -> Any:
    """Import Flower when it is first needed (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'fedro.flower' has no attribute {name!r}")
    try:
        import flwr  # noqa: F401
    except ImportError:
        raise ImportError("fedro.flower needs Flower: pip install 'fedro[flower]'") from None
    return getattr(importlib.import_module(f"fedro.flower.{MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
