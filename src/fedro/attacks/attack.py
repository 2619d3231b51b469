"""An attack: stages joined by ``|``, each with a hook: wait, poison, train, forge or silence."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedro.attacks.forged import Forged, add_stage, guard_messages, rows_of
from fedro.attacks.table import ATTACKS, AttackEntry, Hook
from fedro.attacks.view import HiddenError, RestrictedView, View
from fedro.common.stages import Stage, load, parse_stage

QUOTED = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""
BAR = re.compile(rf"""\|(?=(?:[^'"]|{QUOTED})*$)""")  # a bar that is not within quotes


class LabeledExamples(Protocol):
    """What a client trains on: a named tuple of inputs x and labels y."""

    @property
    def x(self) -> Tensor:
        """Inputs."""

    @property
    def y(self) -> Tensor:
        """Labels."""


E = TypeVar("E", bound=LabeledExamples)


@dataclass(frozen=True)
class Attack:
    """What the Byzantine clients do, stage by stage.

    Get one from `parse_attack` or from a factory such as ``fedro.attacks.alie(z=1.5)``. Attacks are
    joined with ``|``; ``str(attack)`` is a text that `parse_attack` reads.

    Attributes:
        stages: Names and options of the stages.

    Raises:
        ValueError: There is no stage, a stage is unknown, or its options are not allowed.

    Example:
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
        """Join two attacks; the stages of the right one come after those of the left one."""
        return Attack(self.stages + other.stages) if isinstance(other, Attack) else NotImplemented

    def __str__(self) -> str:
        return " | ".join(str(stage) for stage in self.stages)

    def __hash__(self) -> int:
        return hash(tuple(stage.name for stage in self.stages))

    @property
    def entries(self) -> list[AttackEntry]:
        """The table's entries of the stages."""
        return [find_attack(stage.name) for stage in self.stages]

    @property
    def hooks(self) -> frozenset[str]:
        """The hooks that the stages use: "wait", "poison", "train", "forge", "silence"."""
        return frozenset(entry.hook for entry in self.entries)

    @property
    def knows(self) -> frozenset[str]:
        """Everything that at least one stage knows."""
        pairs = zip(self.stages, self.entries, strict=True)
        return frozenset().union(*(entry.knowledge(stage.options) for stage, entry in pairs))

    @property
    def trains(self) -> bool:
        """Whether Byzantine clients train in some round: they send their update or a stage uses it.

        ``attack.at(round).trains`` tells it for one round.
        """
        always = takewhile(lambda entry: entry.hook != "wait", self.entries)
        return not any(entry.replaces for entry in always) or "own update" in self.knows

    def at(self, round: int) -> "Attack":
        """Return what the Byzantine clients do in a round.

        A stage that waits holds back all stages after it. `forge` and `silent` take account of it;
        for `poison`, `restraint` and `trains`, ask the attack of the round.

        Args:
            round: Number of the round, from 0.

        Returns:
            The stages that act in this round; the attack `none` if there are none.

        Raises:
            UserCodeError: A stage of your own failed.

        Example:
            >>> attack = parse_attack("label_flip | patient(until=10) | sign_flip")
            >>> str(attack.at(9)), str(attack.at(10))
            ('label_flip', 'label_flip | sign_flip')
        """
        if "wait" not in self.hooks:
            return self
        acting: list[Stage] = []
        for stage, entry in zip(self.stages, self.entries, strict=True):
            if entry.hook != "wait":
                acting.append(stage)
                continue
            with entry.user_code("attack"):
                waits = bool(entry.function(round, **stage.options))
            if waits:
                break
        return Attack(tuple(acting) or (Stage("none", {}),))

    def poison(self, examples: E, classes: int, rng: np.random.Generator) -> E:
        """Return what a Byzantine client trains on; each stage changes the result of the last.

        All poisoning stages apply; ``attack.at(round)`` has those of one round.

        Args:
            examples: The client's training examples; they are not modified.
            classes: Number of classes.
            rng: Random generator of this client.

        Returns:
            The poisoned examples, of the same type.

        Raises:
            ValueError: The attack cannot be used on these examples.
        """
        for stage, entry in self._with("poison"):
            with entry.user_code("attack"):
                examples = entry.function(examples, classes, rng, **stage.options)
        return examples

    @property
    def restraint(self) -> float:
        """How strongly training is held near the server's model: ρ of the last train stage.

        A Byzantine client minimizes (1−ρ)·loss + ρ·‖w − the server's model‖. It is 0 without a
        train stage. A ρ outside 0 to 1 raises ValueError.
        """
        restraints = []
        for stage, entry in self._with("train"):
            with entry.user_code("attack"):
                restraints.append(float(entry.function(**stage.options)))
        if restraints and not 0 <= restraints[-1] <= 1:
            raise ValueError(
                f"attack {self}: a restraint of {restraints[-1]}, need one from 0 to 1"
            )
        return restraints[-1] if restraints else 0.0

    def triggered(self, examples: E, classes: int) -> E | None:
        """Return test examples that show the backdoor, labeled as the attackers want them.

        Args:
            examples: Test examples; they are not modified.
            classes: Number of classes.

        Returns:
            The examples of the last stage that has a trigger, or None if no stage has one.

        Raises:
            ValueError: The backdoor cannot be used on these examples.
        """
        for stage, entry in reversed([*self._with("poison")]):
            if entry.trigger is not None:
                with entry.user_code("trigger of the attack", function=entry.trigger):
                    return cast(E, entry.triggered(examples, classes, stage.options))
        return None

    def forge(self, view: View) -> Forged:
        """Return what the Byzantine clients send in a round.

        Each stage overrides what the stages before it send. If no honest update is finite, a stage
        that knows the honest updates sends zeros, or nothing if it may leave messages as they are.

        Args:
            view: The round. Each stage sees the part of it that it declares to know.

        Returns:
            The messages; ``rows=None`` means that the clients send what they trained.

        Raises:
            HiddenError: A stage uses more of the view than it declares to know.
            ValueError: A stage returned nothing, or a message of the wrong shape.
            UserCodeError: A stage of your own failed.
        """
        sent = view.forged
        if not len(view.byzantine):
            return sent
        for stage, entry in self.at(view.round)._with("forge"):
            needs_honest = "honest updates" in entry.knowledge(stage.options)
            if needs_honest and not view.any_honest_finite:
                result: Any = view.full(0.0) if entry.replaces else None
            else:
                with (guard := entry.user_code("attack", HiddenError)):
                    result = entry.function(_restricted(view, stage, entry, sent), **stage.options)
                result = guard_messages(result, guard)
            if entry.replaces and rows_of(result) is None:
                raise ValueError(f"attack {stage} sends nothing: register it with replaces=False")
            sent = add_stage(sent, result, f"attack {stage}", len(view.byzantine), view.width)
        return sent

    def silent(self, view: View) -> NDArray[np.bool_]:
        """Return which Byzantine clients do not reply: those that any stage names.

        Args:
            view: The round, as for `forge`.

        Returns:
            A mask with one value for each row in ``view.byzantine``.

        Raises:
            HiddenError: A stage uses more of the view than it declares to know.
            ValueError: A stage lets clients reply although it is registered with replaces=True.
        """
        mask = np.zeros(len(view.byzantine), dtype=bool)
        for stage, entry in self.at(view.round)._with("silence"):
            restricted = _restricted(view, stage, entry, view.forged)
            with entry.user_code("attack", HiddenError):
                silent = entry.function(restricted, **stage.options)
                silent = np.broadcast_to(np.asarray(silent, dtype=bool), mask.shape)
            if entry.replaces and not np.all(silent):
                raise ValueError(
                    f"attack {stage}: not all are silent: register it with replaces=False"
                )
            mask |= silent
        return mask

    def _with(self, hook: Hook) -> Iterator[tuple[Stage, AttackEntry]]:
        pairs = zip(self.stages, self.entries, strict=True)
        return ((stage, entry) for stage, entry in pairs if entry.hook == hook)


def _restricted(view: View, stage: Stage, entry: AttackEntry, sent: Forged) -> View:
    """The view as a stage may see it."""
    return cast(View, RestrictedView(view, stage.name, entry.knowledge(stage.options), sent))


def find_attack(name: str) -> AttackEntry:
    """Return the entry of a name in the table, or of ``"my_module:my_attack"``."""
    module, colon, _ = name.rpartition(":")
    if not colon:
        return ATTACKS[name]
    if not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"{name!r}: write an attack of your own as 'my_module:my_attack'")
    entry = getattr(load(name), "entry", None)
    if not isinstance(entry, AttackEntry):
        raise ValueError(
            f"{name!r} is not an attack: put @forge(…), @poison(…), @train(…), @silence(…) or "
            "@wait(…) above the function"
        )
    return entry


def parse_attack(attack: str | Attack) -> Attack:
    """Read an attack from text; an `Attack` is returned unchanged.

    Args:
        attack: Names joined by ``|``, with options by name: "none", "alie(z=1.5)",
            "sign_flip | takeover(at='reach')" or, from your own module, "my_module:attack(x=1)".

    Returns:
        The attack.

    Raises:
        ValueError: The text cannot be read, a name is unknown, or an option is unknown, missing or
            not allowed. The message names what is known or allowed.

    Example:
        >>> attack = parse_attack("sign_flip | takeover")
        >>> parse_attack(attack) is attack
        True
    """
    if isinstance(attack, Attack):
        return attack
    entry = getattr(attack, "entry", None)
    if isinstance(entry, AttackEntry):
        raise ValueError(f"{entry.name} makes attacks: call it, as in {entry.name}()")
    if not isinstance(attack, str):
        raise ValueError(f"an attack is a text like 'alie' or 'none', or an Attack, not {attack!r}")
    return Attack(tuple(parse_stage("attack", part) for part in BAR.split(attack)))
