"""An exception in an attack of the user's own, in every hook."""

import sys
from pathlib import Path

import pytest

import fedro
from fedro.attacks import HiddenError

MODULE = '''
from fedro.attacks import Forged, forge, poison, silence, train, wait

def fail():
    return 1 / 0

@forge()
def forges(view):
    """Fail at once."""
    fail()

@forge()
def generates(view):
    """Fail after the first message."""
    for _ in view.byzantine:
        yield view.full(0.0)
        fail()

@forge()
def writes(view):
    """Fail when the messages are written."""
    return Forged(lambda updates, rows: fail())

@poison()
def poisons(examples, classes, rng):
    """Fail."""
    fail()

@train()
def trains():
    """Fail."""
    fail()

@silence()
def silences(view):
    """Fail."""
    fail()

@wait()
def waits(round):
    """Fail."""
    fail()

@poison(trigger=lambda examples, classes: fail())
def triggers(examples, classes, rng):
    """A backdoor that fails."""
    return examples

@forge()
def asks_the_rule(view):
    """Use more than it declares."""
    return view.honest_mean

@forge(knows="rule")
def meets_a_void_round(view):
    """Call the rule with too few rows."""
    return view.aggregate(view.full(0.0)[None])
'''
BASE = {"clients": 6, "byzantine": 2, "sampled": 6, "tolerated": 2, "rounds": 1, "local_steps": 1}


def run(attack: str) -> list[fedro.Round]:
    return list(fedro.run(fedro.Experiment(**BASE, attack=attack, engine="inline")))


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: None) -> Path:
    (tmp_path / "broken_attacks.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_attacks", raising=False)
    return tmp_path / "broken_attacks.py"


def test_every_hook(module: Path) -> None:
    hooks = {"forges", "generates", "writes", "poisons", "trains", "silences", "waits"}
    for name in (*sorted(hooks), "triggers"):
        with pytest.raises(fedro.UserCodeError) as raised:
            run(f"broken_attacks:{name}")
        error = raised.value
        assert (error.file, error.line, error.source) == (str(module), 5, "return 1 / 0")
        assert error.what.endswith(f"attack broken_attacks:{name}")
        in_round = name in ("forges", "generates", "writes", "silences")
        assert error.moment == ("in round 0" if in_round else "")


def test_our_own_errors_keep_their_meaning(module: Path) -> None:
    with pytest.raises(HiddenError, match="knows nothing, but uses"):
        run("broken_attacks:asks_the_rule")
    with pytest.raises(fedro.UserCodeError, match="NoAggregateError") as raised:
        run("broken_attacks:meets_a_void_round")
    assert raised.value.source == "return view.aggregate(view.full(0.0)[None])"
