"""An attack: stages joined by ``|``, each with a hook: poison, train, forge or silence."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedro.attacks.messages import joined, rows_of
from fedro.attacks.table import ATTACKS, Entry, Hook
from fedro.attacks.view import Forged, Restricted, View
from fedro.common.registry import Stage, load, parse_stage

QUOTED = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""
BAR = re.compile(rf"""\|(?=(?:[^'"]|{QUOTED})*$)""")  # a bar that is not within quotes


class Examples(Protocol):
    """What a client trains on: a named tuple of inputs x and labels y."""

    @property
    def x(self) -> Tensor:
        """Inputs."""

    @property
    def y(self) -> Tensor:
        """Labels."""


E = TypeVar("E", bound=Examples)


@dataclass(frozen=True)
class Attack:
    """What the bad clients do, stage by stage.

    >>> attack = parse_attack("label_flip | takeover(at='reach')")
    >>> attack.trains, sorted(attack.hooks)
    (True, ['forge', 'poison'])
    """

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        if not self.stages:
            raise ValueError("an attack has at least one stage: parse_attack('none') does nothing")
        for stage, entry in zip(self.stages, self.entries, strict=True):
            entry.check_options(stage.options)

    def __or__(self, other: "Attack") -> "Attack":
        """Join: the right goes on from what the left does."""
        return Attack(self.stages + other.stages) if isinstance(other, Attack) else NotImplemented

    def __str__(self) -> str:
        return " | ".join(str(stage) for stage in self.stages)

    def __hash__(self) -> int:
        return hash(tuple(stage.name for stage in self.stages))

    @property
    def entries(self) -> list[Entry]:
        """The table's entries of the stages."""
        return [find(stage.name) for stage in self.stages]

    @property
    def hooks(self) -> frozenset[str]:
        """Which of poison, train, forge and silence it uses."""
        return frozenset(entry.hook for entry in self.entries)

    @property
    def knows(self) -> frozenset[str]:
        """What its stages know, all together."""
        pairs = zip(self.stages, self.entries, strict=True)
        return frozenset().union(*(entry.knowledge(stage.options) for stage, entry in pairs))

    @property
    def trains(self) -> bool:
        """Must bad clients run local steps? Yes, if what comes of them is sent or looked at."""
        replaced = any(entry.replaces for entry in self.entries)
        return not replaced or "own update" in self.knows

    def poison(self, examples: E, classes: int, rng: np.random.Generator) -> E:
        """What a bad client trains on; each stage works on what the one before made."""
        for stage, entry in self._with("poison"):
            examples = entry.function(examples, classes, rng, **stage.options)
        return examples

    @property
    def restraint(self) -> float:
        """How much a bad client's training is held back, by the last stage that says so."""
        found = [float(entry.function(**stage.options)) for stage, entry in self._with("train")]
        if found and not 0 <= found[-1] <= 1:
            raise ValueError(f"attack {self}: a restraint of {found[-1]}, need one from 0 to 1")
        return found[-1] if found else 0.0

    def triggered(self, examples: E, classes: int) -> E | None:
        """Test examples that show the backdoor, with the labels that the attackers want.

        Those of the last stage that has one; None if there is no such stage.
        """
        for stage, entry in reversed([*self._with("poison")]):
            if entry.trigger is not None:
                return cast(E, entry.triggered(examples, classes, stage.options))
        return None

    def forge(self, view: View) -> Forged:
        """What the bad clients send, by the last stage that says so; rows=None is their own.

        Where no honest message is known, attacks that are made of these send zeros.
        """
        sent = view.forged
        if not len(view.byzantine):
            return sent
        for stage, entry in self._with("forge"):
            if "honest updates" in entry.knowledge(stage.options) and not view.informed:
                result: Any = view.full(0.0)
            else:
                seen = restrict(view, stage, entry, sent)
                result = entry.function(seen, **stage.options)
            if entry.replaces and rows_of(result) is None:
                raise ValueError(f"attack {stage} sends nothing: register it with replaces=False")
            sent = joined(sent, result, f"attack {stage}", len(view.byzantine), view.width)
        return sent

    def silent(self, view: View) -> NDArray[np.bool_]:
        """Which bad clients do not answer, (len(view.byzantine),): those that any stage names."""
        mask = np.zeros(len(view.byzantine), dtype=bool)
        for stage, entry in self._with("silence"):
            found = entry.function(restrict(view, stage, entry, view.forged), **stage.options)
            if entry.replaces and not np.all(found):
                raise ValueError(f"attack {stage}: not all are silent: register replaces=False")
            mask |= np.broadcast_to(np.asarray(found, dtype=bool), mask.shape)
        return mask

    def _with(self, hook: Hook) -> Iterator[tuple[Stage, Entry]]:
        pairs = zip(self.stages, self.entries, strict=True)
        return ((stage, entry) for stage, entry in pairs if entry.hook == hook)


def restrict(view: View, stage: Stage, entry: Entry, sent: Forged) -> View:
    """The view as a stage may see it."""
    return cast(View, Restricted(view, stage.name, entry.knowledge(stage.options), sent))


def find(name: str) -> Entry:
    """The attack of a name in the table, or of ``"my_module:name"``."""
    module, colon, _ = name.rpartition(":")
    if not colon:
        return ATTACKS[name]
    if not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"{name!r}: write an attack of your own as 'my_module:my_attack'")
    found = load(name)
    if not isinstance(found, Entry):
        raise ValueError(
            f"{name!r} is no attack: put @forge(…), @poison(…), @train(…) or @silence(…) above"
        )
    return found


def parse_attack(text: str) -> Attack:
    """Read ``"none"``, ``"sign_flip | takeover(at='reach')"`` or ``"my_module:attack(x=1)"``."""
    if not isinstance(text, str):
        raise ValueError(f"an attack is a text like 'alie' or 'none', not {text!r}")
    return Attack(tuple(parse_stage("attack", part) for part in BAR.split(text)))


def factory(entry: Entry) -> Callable[..., Attack]:
    """What makes an attack of one stage in Python: ``foe(tau=3.0)``."""

    def make(**options: Any) -> Attack:
        plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in options.items()}
        return Attack((Stage(entry.name, plain),))

    make.__name__, make.__doc__ = entry.name, entry.function.__doc__
    return make
