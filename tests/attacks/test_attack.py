"""Attacks as stages: how they are read and written, what they know, who trains."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attack_cases import (
    EVERY,
    VARIANTS,
    make,
    sent,
)
from fedro import attacks
from fedro.attacks import (
    ATTACKS,
    Attack,
    AttackEntry,
    Forged,
    View,
    forge,
    parse_attack,
    silence,
)
from fedro.common.options import PROPER_SHARE, Option
from fedro.common.stages import Stage
from fedro.rules import parse_rule


def test_what_each_attack_knows() -> None:
    knows = {str(attack): ", ".join(sorted(attack.knows)) or "nothing" for attack in VARIANTS}
    assert knows["sign_flip"] == knows["alie"] == knows["mimic"] == "honest updates"
    assert knows["sign_flip(own=True)"] == "own update"
    assert knows["label_flip"] == "own data"
    assert knows["gauss(std=0.5)"] == knows["silent"] == knows["takeover"] == "nothing"


@pytest.mark.parametrize(
    ("text", "trains"),
    [
        ("none", True),
        ("takeover", True),  # until then, they send what they trained
        ("label_flip", True),
        ("label_flip | takeover", True),
        ("sign_flip(own=True)", True),
        ("label_flip | sign_flip(own=True) | takeover", True),
        ("sign_flip", False),
        ("sign_flip | takeover", False),
        ("silent", False),
        ("nan", False),
        ("patient | sign_flip", True),  # while they wait
        ("sign_flip | patient | foe", False),
        ("noisy", True),
        ("sign_flip | noisy", False),
        ("framing", True),  # while the victim is not sampled
        ("below_the_line", True),
    ],
)
def test_who_trains(text: str, trains: bool) -> None:
    assert parse_attack(text).trains == trains


def test_later_stages_override_and_keep() -> None:
    view = make()
    assert torch.equal(sent("foe | zero", view), torch.zeros(2, 12))
    assert torch.equal(sent("zero | foe", view), sent("foe", view))
    assert torch.equal(sent("foe | none", view), sent("foe", view))
    assert torch.equal(sent("none", view), view.updates[[1, 4]])
    assert parse_attack("foe | label_flip | silent").hooks == {"forge", "poison", "silence"}


@pytest.mark.usefixtures("table")
def test_a_stage_gets_what_the_one_before_sends() -> None:
    @forge()
    def doubled(view: View) -> Tensor:
        """Twice."""
        assert isinstance(view.forged.rows, Tensor)
        return 2 * view.forged.rows

    assert torch.allclose(sent("sign_flip | doubled", make()), sent("foe", make()))


@pytest.mark.usefixtures("table")
def test_some_are_silent() -> None:
    @silence(replaces=False)
    def first(view: View, *, count: int = 1) -> Any:
        """Some."""
        return np.arange(len(view.byzantine)) < count

    @silence()
    def sloppy(view: View) -> bool:
        """None, though it says all."""
        return False

    assert parse_attack("first").silent(make()).tolist() == [True, False]
    assert parse_attack("first(count=0) | first").silent(make()).tolist() == [True, False]
    assert parse_attack("first | first(count=0)").silent(make()).tolist() == [True, False]
    assert parse_attack("first").trains
    with pytest.raises(ValueError, match="sloppy: not all are silent"):
        parse_attack("sloppy").silent(make())


def test_texts() -> None:
    assert str(parse_attack(" sign_flip|takeover( at = 'more' ) ")) == (
        "sign_flip | takeover(at='more')"
    )
    assert attacks.sign_flip() | attacks.takeover(at="reach") == parse_attack(
        "sign_flip | takeover(at='reach')"
    )
    assert attacks.foe(tau=np.float64(0.5)) == parse_attack("foe(tau=0.5)")
    assert parse_attack("foe(tau=2)") == parse_attack("foe(tau=2.0)")
    assert hash(parse_attack("foe(tau=2)")) == hash(parse_attack("foe(tau=2.0)"))
    assert parse_attack("foe") != parse_attack("alie")
    assert set(EVERY) <= set(attacks.__all__)
    with pytest.raises(AttributeError, match="no_such"):
        _ = attacks.no_such


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("aile", "unknown attack 'aile': did you mean 'alie'"),
        ("foe(tua=1.0)", "unknown option of foe 'tua': did you mean 'tau'"),
        ("foe(tau='big')", "must be of type float"),
        ("foe(tau=1e999)", "must be finite"),
        ("foe(tau=1e39)", "tau must be of a size that float32 can hold"),
        (f"foe(tau={10**400})", "that float32 can hold"),
        ("gauss", "gauss needs std"),
        ("gauss(std=-1.0)", "must be at least 0"),
        ("mimic(warmup=0)", "must be at least 1"),
        ("patient(until=-1)", "must be at least 0"),
        ("noisy(std=-0.1)", "must be at least 0"),
        ("framing(victim=-1)", "must be at least 0"),
        ("below_the_line(keep=0.0)", "must be more than 0 and at most 1"),
        ("below_the_line(keep=1.5)", "must be more than 0 and at most 1"),
        ("takeover(at='mor')", "takeover(at='mor'): at must be 'more' or 'reach'"),
        ("alie(sign=2)", "alie(sign=2): sign must be 1 or -1"),
        ("", "cannot read the attack"),
        ("alie |", "cannot read the attack"),
        ("alie || foe", "cannot read the attack"),
        ("None", "cannot read the attack"),
        ("alie(1)", "cannot read the attack"),
        ("no_such_module:attack", "no module 'no_such_module'"),
        ("fedro.attacks.forging:foee", "did you mean 'foe'"),
        ("math:sqrt", "is not an attack: put @forge"),
        (":foe", "write an attack of your own as"),
        ("..:foe", "write an attack of your own as"),
        ("a b:foe", "write an attack of your own as"),
    ],
)
def test_texts_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_attack(text)
    assert message in str(error.value)


def test_an_attack_is_returned_unchanged() -> None:
    attack = attacks.foe(tau=3.0) | attacks.takeover()
    assert parse_attack(attack) is attack


def test_only_texts_and_attacks() -> None:
    with pytest.raises(ValueError, match="an attack is a text"):
        parse_attack(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one stage"):
        Attack(())
    with pytest.raises(TypeError):
        _ = parse_attack("alie") | "foe"  # type: ignore[operator]


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        attack = parse_attack(text)
    except ValueError:
        return  # any other exception fails the test
    assert parse_attack(str(attack)) == attack


def values(option: Option) -> st.SearchStrategy[Any]:
    """Values that an option may have."""
    if option.name == "among":  # a list of attacks, of `worst`
        return st.sampled_from(["foe", "alie(z=1.0); zero"])
    if option.allowed is PROPER_SHARE:
        return st.floats(0.01, 1.0)
    least = next((k for k in (1, 0) if option.allowed and not option.allowed(k - 1)), None)
    kinds = {
        float: st.floats(-1e30 if least is None else least, 1e30),
        int: st.integers(-1000 if least is None else least, 1000),
        bool: st.booleans(),
        str: st.text(max_size=10),
        type(None): st.none(),
    }
    literals = [st.sampled_from(option.literals)] if option.literals else []
    return st.one_of(*literals, *(kinds[kind] for kind in option.types))


@st.composite
def stages(draw: st.DrawFn) -> Stage:
    entry: AttackEntry = ATTACKS[draw(st.sampled_from(EVERY))]
    options = {
        key: draw(values(option))
        for key, option in entry.options.items()
        if option.required or draw(st.booleans())
    }
    return Stage(entry.name, options)


@given(st.lists(stages(), min_size=1, max_size=4))
def test_texts_parse_back(parts: list[Stage]) -> None:
    attack = Attack(tuple(parts))
    again = parse_attack(str(attack))
    assert again == attack
    assert hash(again) == hash(attack)
    assert str(again) == str(attack)
    assert again.trains == attack.trains


@pytest.mark.usefixtures("table")
def test_an_attack_that_calls_the_rule() -> None:
    @forge(knows="honest updates, rule")
    def best_factor(view: View) -> Tensor:
        """The multiple of the honest mean that moves the aggregate furthest."""

        def moved(factor: float) -> float:
            matrix, forged = view.updates.clone(), Forged(factor * view.honest_mean)
            forged.write(matrix, view.byzantine)
            assert view.aggregate is not None
            return float((view.aggregate(matrix) - view.honest_mean).norm())

        return max((-3.0, 1.0, 2.0), key=moved) * view.honest_mean

    view = make(aggregate=parse_rule("trimmed_mean", b=2))
    assert torch.equal(sent("best_factor", view)[0], -3.0 * view.honest_mean)
    assert parse_attack("best_factor").knows == {"honest updates", "rule"}


def test_a_factory_must_be_called() -> None:
    with pytest.raises(ValueError, match=r"alie makes attacks: call it, as in alie\(\)"):
        parse_attack(attacks.alie)  # type: ignore[arg-type]
