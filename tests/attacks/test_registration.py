"""One function makes an attack: a table entry and a typed factory."""

import doctest
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from attack_cases import (
    EVERY,
    Examples,
    make,
    sent,
)
from fedro import attacks
from fedro.attacks import (
    ATTACKS,
    Attack,
    View,
    forge,
    parse_attack,
    poison,
    silence,
    train,
)
from fedro.attacks.table import as_markdown, as_text
from fedro.common.options import ABOVE_ZERO, at_least

MODULE = '''
from fedro.attacks import forge

@forge(knows="own update", source="this test")
def boost(view, *, factor: float = 2.0, label: str = ""):
    """Own updates, enlarged."""
    return (factor * view.own(k) for k in range(len(view.byzantine)))

def plain(view):
    return view.full(0.0)
'''


@pytest.mark.usefixtures("table")
def test_an_attack_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_attacks.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    attack = parse_attack("label_flip | their_attacks:boost(factor=3.0) | takeover")
    assert str(attack) == "label_flip | their_attacks:boost(factor=3.0) | takeover"
    assert parse_attack(str(attack)) == attack
    assert attack.trains
    view = make()
    assert torch.equal(sent(attack, view), 3 * view.updates[[1, 4]])
    assert parse_attack("boost").trains  # by its name alone, once it is imported
    assert "| boost(factor=2.0" in as_markdown()
    with pytest.raises(ValueError, match="is not an attack"):
        parse_attack("their_attacks:plain")
    with pytest.raises(ValueError, match="did you mean 'factor'"):
        parse_attack("their_attacks:boost(factr=3.0)")
    boost = importlib.import_module("their_attacks").boost
    assert str(boost(factor=3.0)) == "their_attacks:boost(factor=3.0)"  # read in any process
    for label in ("a|b", "it's | (x)", '"', "'\"|\\", "a:b(", "\\'|"):
        quoted = boost(label=label) | parse_attack("their_attacks:boost | zero")
        assert parse_attack(str(quoted)) == quoted


@pytest.mark.usefixtures("table")
def test_registered_attacks_are_found_everywhere() -> None:
    @poison(source="this test")
    def shifted(examples: Examples, classes: int, rng: np.random.Generator) -> Examples:
        """What training on shifted labels gives."""
        return examples._replace(y=(examples.y + 1) % classes)

    examples = Examples(torch.zeros(3, 2), torch.tensor([0, 1, 2]))
    both = parse_attack("shifted | label_flip").poison(examples, 3, np.random.default_rng(0))
    assert both.y.tolist() == [1, 0, 2]
    assert "shifted" in as_text().plain
    with pytest.raises(ValueError, match="already taken"):
        poison()(shifted.entry.function)
    with pytest.raises(ValueError, match="did you mean 'honest updates'"):
        forge(knows="honest update")


def test_every_attack_is_listed() -> None:
    markdown, text = as_markdown(), as_text().plain
    for name in EVERY:
        entry = ATTACKS[name]
        assert f"| {name}" in markdown
        assert entry.summary in text
        assert entry.summary.endswith(".")
        assert getattr(attacks, name).entry is entry
        assert name in attacks.__all__
    assert "honest updates; own=True: own update" in markdown


@pytest.mark.parametrize("name", EVERY)
def test_factories_explain_themselves(name: str) -> None:
    """help() and editors show the options, their types and the result."""
    factory = getattr(attacks, name)
    signature = inspect.signature(factory)
    assert list(signature.parameters) == list(ATTACKS[name].options)
    assert all(p.kind is p.KEYWORD_ONLY for p in signature.parameters.values())
    assert signature.return_annotation is Attack
    assert factory.__name__ == name
    text = inspect.getdoc(factory) or ""
    for section in ("Returns:", "Raises:", "Example:"):
        assert text.count(f"\n\n{section}\n") == 1
    for option in signature.parameters:
        assert f"\n    {option}: " in text


@pytest.mark.parametrize("name", EVERY)
def test_examples_of_factories(name: str) -> None:
    """doctest does not look at factories, since their code is in another module."""
    text = inspect.getdoc(getattr(attacks, name)) or ""
    example = doctest.DocTestParser().get_doctest(text, dict(vars(attacks)), name, None, 0)
    assert example.examples
    failures: list[str] = []
    assert doctest.DocTestRunner().run(example, out=failures.append).failed == 0, "".join(failures)


def no_view() -> Tensor:
    return torch.zeros(1)


def no_hint(view: View, *, factor=2.0) -> Tensor:  # type: ignore[no-untyped-def]
    return factor * view.model


def positional(view: View, factor: float) -> Tensor:
    return factor * view.model


def good(view: View, *, factor: float = 2.0, at: Literal["a", "b"] = "a") -> Tensor:
    return factor * view.model


def flip(examples: Any, classes: int, rng: Any, *, label: int = 1) -> Any:
    return examples


def other_trigger(examples: Any, classes: int, *, target: int) -> Any:
    return examples


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("register", "error", "message"),
    [
        (lambda: forge()(no_view), TypeError, r"@forge: define no_view\(view, \*, …\)"),
        (lambda: forge()(no_hint), TypeError, "option 'factor' has no type hint"),
        (lambda: forge()(positional), TypeError, r"define positional\(view, \*, …\)"),
        (lambda: poison()(no_view), TypeError, r"define no_view\(examples, classes, rng, "),
        (lambda: train()(good), TypeError, r"@train: define good\(\*, …\)"),
        (lambda: forge(ranges={"fctor": ABOVE_ZERO})(good), ValueError, "did you mean 'factor'"),
        (lambda: forge(ranges={"factor": "above 0"})(good), TypeError, "give a Range"),
        (lambda: forge(ranges={"factor": at_least(3)})(good), ValueError, "must be at least 3"),
        (lambda: forge(knows_with={"onw": "rule"})(good), ValueError, "option of good 'onw'"),
        (lambda: forge(knows_with={"at": "rules"})(good), ValueError, "did you mean 'rule'"),
        (lambda: silence(knows="rules")(good), ValueError, "did you mean 'rule'"),
        (lambda: poison(trigger=other_trigger)(flip), ValueError, "option of flip 'target'"),
    ],
)
def test_bad_declarations_are_refused_at_once(
    register: Callable[[], object], error: type[Exception], message: str
) -> None:
    before = list(ATTACKS)
    with pytest.raises(error, match=message):
        register()
    assert list(ATTACKS) == before


@pytest.mark.usefixtures("table")
def test_a_good_declaration_is_accepted() -> None:
    made = forge(ranges={"factor": ABOVE_ZERO})(good)
    assert str(made(at="b")) == "good(at='b')"  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=r"good\(factor=0.0\): factor must be above 0"):
        made(factor=0.0)


@pytest.mark.usefixtures("table")
def test_a_decorator_can_be_used_for_several_attacks() -> None:
    decorator = forge(knows="own update")

    @decorator
    def one_each(view):
        """A generator: each sends something else."""
        yield from (view.own(number) for number in range(len(view.byzantine)))

    @decorator
    def the_same(view):
        """One update for all."""
        return view.own(0)

    assert one_each.entry.distinct
    assert not the_same.entry.distinct
