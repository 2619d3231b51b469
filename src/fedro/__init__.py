"""Byzantine-robust federated learning: plan, simulate under attack, deploy.

>>> import fedro
>>> fedro.plan(clients=150, byzantine=15, rounds=500).sampled
27
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedro.attacks import ATTACKS, Attack, parse_attack
    from fedro.common.user_code import UserCodeError
    from fedro.data import Examples, Federation, make_federation
    from fedro.planning import Outlook, Plan, SampleSize, Scenario, plan, scenarios
    from fedro.rules import RULES, Rule, parse_rule
    from fedro.rules.kappa_search import Found, WorstCase, search_kappa
    from fedro.runs.suspects import suspects
    from fedro.server import Round
    from fedro.server.suspect_report import ClientEvidence, SuspectReport
    from fedro.simulation.experiment import Experiment, read_experiment
    from fedro.simulation.loop import run
    from fedro.simulation.preparation import prepare
    from fedro.simulation.recording import run_into
    from fedro.simulation.sweeps import read_sweep, sweep

__version__ = "0.1.0"

_HOME = {
    "ATTACKS": "attacks",
    "RULES": "rules",
    "Attack": "attacks",
    "ClientEvidence": "server.suspect_report",
    "Examples": "data",
    "Experiment": "simulation.experiment",
    "Federation": "data",
    "Found": "rules.kappa_search",
    "Outlook": "planning",
    "Plan": "planning",
    "Round": "server",
    "Rule": "rules",
    "SampleSize": "planning",
    "Scenario": "planning",
    "SuspectReport": "server.suspect_report",
    "UserCodeError": "common.user_code",
    "WorstCase": "rules.kappa_search",
    "make_federation": "data",
    "parse_attack": "attacks",
    "parse_rule": "rules",
    "plan": "planning",
    "prepare": "simulation.preparation",
    "read_experiment": "simulation.experiment",
    "read_sweep": "simulation.sweeps",
    "run": "simulation.loop",
    "run_into": "simulation.recording",
    "scenarios": "planning",
    "search_kappa": "rules.kappa_search",
    "suspects": "runs.suspects",
    "sweep": "simulation.sweeps",
}
__all__ = [
    "ATTACKS",
    "RULES",
    "Attack",
    "ClientEvidence",
    "Examples",
    "Experiment",
    "Federation",
    "Found",
    "Outlook",
    "Plan",
    "Round",
    "Rule",
    "SampleSize",
    "Scenario",
    "SuspectReport",
    "UserCodeError",
    "WorstCase",
    "__version__",
    "make_federation",
    "parse_attack",
    "parse_rule",
    "plan",
    "prepare",
    "read_experiment",
    "read_sweep",
    "run",
    "run_into",
    "scenarios",
    "search_kappa",
    "suspects",
    "sweep",
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
