"""What an attack sees of a round: only what is declared visible to it."""

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Any

import pytest
import torch
from torch import Tensor

from attack_cases import (
    make,
    same_bits,
    sent,
)
from fedro.attacks import (
    HiddenError,
    View,
    forge,
    parse_attack,
    silence,
    visible,
)
from fedro.attacks.view import KNOWLEDGE, visibility


def test_one_pass_or_two_give_the_same_mean(backend: str) -> None:
    view, other = make(width=7000), make(width=7000)
    view.updates[2, 5] = other.updates[2, 5] = math.inf
    torch.testing.assert_close(view.honest_mean, other.honest_moments[0])
    assert same_bits(view.honest_std, other.honest_std)
    assert other.honest_mean is other.honest_moments[0]
    assert view.finite_honest.tolist() == other.finite_honest.tolist() == [0, 3, 5, 6]


@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38])
def test_one_finite_honest_update_is_enough(value: float) -> None:
    view = make()
    view.updates[torch.from_numpy(view.honest)] = value
    assert view.any_honest_finite == (value == 3e38)  # its sum is not finite, but it is
    view.updates[6] = 1.0
    assert view.any_honest_finite
    assert not make(2, (0, 1)).any_honest_finite


PUBLIC = sorted(
    {name for name in dir(View) if not name.startswith("_")} | {item.name for item in fields(View)}
)
SECRETS = {  # what must never be visible to an attack that does not know the honest updates, …
    "honest updates": [
        *("updates", "honest", "ids", "finite_honest", "any_honest_finite", "dispersion"),
        *("honest_moments", "honest_mean", "honest_std"),
    ],
    "own update": ["own", "own_updates"],
    "rule": ["aggregate", "cache"],
}


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_public_declares_who_sees_it(name: str) -> None:
    """A new field, property or method of View needs a declaration."""
    declared = visibility(View, name)
    assert declared is not None, f"View.{name} has no visible(…)"
    assert declared.to <= set(KNOWLEDGE)
    for knowledge, names in SECRETS.items():
        if name in names:
            assert declared.to == {knowledge}


def test_only_what_everybody_knows_is_visible_to_all() -> None:
    free = {name for name in PUBLIC if not visibility(View, name).to}  # type: ignore[union-attr]
    assert free == {
        *("byzantine", "model", "server_lr", "tolerated", "round", "rng", "memory", "forged"),
        *("trained", "sampled", "width", "full", "noise"),
    }


@dataclass
class WiderView(View):
    """A view with attributes that nobody declared visible."""

    notes: str = "secret"

    @property
    def honest_sum(self) -> Tensor:
        return self.updates.sum(0)

    @cached_property
    def honest_max(self) -> Tensor:
        return self.updates.amax(0)

    def row(self, number: int) -> Tensor:
        return self.updates[number]

    @property
    @visible("honest updates")
    def honest_min(self) -> Tensor:
        return self.updates.amin(0)


def wider() -> WiderView:
    return WiderView(**vars(make()))


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("name", ["notes", "honest_sum", "honest_max", "row", "added"])
def test_what_is_not_declared_is_hidden_from_all_attacks(name: str) -> None:
    @forge(knows=", ".join(KNOWLEDGE))
    def curious(view: View) -> Tensor:
        """Looks."""
        getattr(view, name)
        return view.full(1.0)

    view = wider()
    view.added = 1  # type: ignore[attr-defined]
    with pytest.raises(
        HiddenError, match=rf"curious uses view\.{name}, .* hidden from every attack"
    ):
        curious().forge(view)


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("knows", ["nothing", "honest updates"])
def test_what_is_declared_on_a_view_of_your_own_is_shown(knows: str) -> None:
    @forge(knows=knows)
    def smallest(view: Any) -> Tensor:
        """Looks."""
        result: Tensor = view.honest_min
        return result

    if knows == "honest updates":
        view = wider()
        assert torch.equal(sent(smallest(), view)[0], view.updates.amin(0))
    else:
        with pytest.raises(HiddenError, match="knows='honest updates'"):
            smallest().forge(wider())


def test_declarations_may_be_written_as_text() -> None:
    @dataclass
    class Later(View):
        seen: "Annotated[int, visible()]" = 0

    assert visibility(Later, "seen") == visible()


def test_knowledge_that_does_not_exist_cannot_be_declared() -> None:
    with pytest.raises(ValueError, match="did you mean 'honest updates'"):
        visible("honest update")  # type: ignore[arg-type]


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("name", [name for names in SECRETS.values() for name in names])
@pytest.mark.parametrize("knows", ["nothing", "own update", "honest updates", "rule"])
def test_using_more_than_declared_is_an_error(name: str, knows: str) -> None:
    @forge(knows=knows)
    def curious(view: View) -> Tensor:
        """Looks."""
        getattr(view, name)
        for missing in ("_honest", "no_such_attribute"):
            with pytest.raises(AttributeError):
                getattr(view, missing)
        return view.full(1.0)

    attack = parse_attack("curious")
    if name in SECRETS.get(knows, []):
        assert torch.equal(sent(attack, make()), torch.ones(2, 12))
        return
    with pytest.raises(
        HiddenError, match=rf"curious knows {knows}.*view\.{name}.*knows='"
    ) as error:
        attack.forge(make())
    assert isinstance(error.value, PermissionError)


@pytest.mark.usefixtures("table")
def test_silence_is_restricted_too() -> None:
    @silence(replaces=False)
    def shy(view: View) -> Any:
        """Looks."""
        return view.honest_mean.sum() > 0

    with pytest.raises(HiddenError, match="honest_mean"):
        parse_attack("shy").silent(make())
