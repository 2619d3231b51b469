"""The table of attacks: the parser, the command line, the docs and the tests read it."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from fedro.attacks.view import PARTS
from fedro.common.registry import Table, check_options, options_of, unknown

Hook = Literal["poison", "train", "forge", "silence"]
LARGEST = 3.4028234663852886e38  # of float32, in which messages are sent


@dataclass(frozen=True)
class Entry:
    """One attack: which hook it is, what it needs to know, where it is from."""

    name: str
    function: Callable[..., Any]
    hook: Hook
    knows: str
    unless: Mapping[str, str]  # option -> what it knows instead if that option is set
    least: Mapping[str, float]  # option -> the smallest value
    replaces: bool  # nothing that the bad clients trained is ever sent
    source: str
    trigger: Callable[..., Any] | None = None  # of a backdoor: what shows that it is in the model
    check: Callable[[Mapping[str, Any]], None] | None = None  # a further look at the options
    each: bool = False  # every bad client sends something else

    @property
    def summary(self) -> str:
        """What it sends, in a line."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """What can be set, by name."""
        return options_of(self.function)

    def triggered(self, examples: Any, classes: int, given: Mapping[str, Any]) -> Any:
        """The examples that show its backdoor, with these options; None if it has none."""
        if self.trigger is None:
            return None
        values = {**{key: option.default for key, option in self.options.items()}, **given}
        return self.trigger(examples, classes, **{k: values[k] for k in options_of(self.trigger)})

    def knowledge(self, given: Mapping[str, Any]) -> frozenset[str]:
        """What it may see with these options."""
        for key, text in self.unless.items():
            if given.get(key, self.options[key].default):
                return parts_of(text)
        return parts_of(self.knows)

    def check_options(self, given: Mapping[str, Any]) -> None:
        """Raise unless every option is known and allowed, and none is missing."""
        check_options(self.name, self.function, given)
        for key, value in given.items():
            self._check_value(key, value)
        if self.check is not None:
            self.check(given)

    def _check_value(self, key: str, value: Any) -> None:
        annotation = self.options[key].annotation
        if get_origin(annotation) is Literal and value not in get_args(annotation):
            allowed = [str(choice) for choice in get_args(annotation)]
            raise ValueError(unknown(f"{key} of {self.name}", value, allowed))
        if not isinstance(value, (int, float)):
            return
        if abs(value) > LARGEST:
            raise ValueError(f"{self.name}({key}=…): more than float32 holds ({LARGEST:.1e})")
        if value < self.least.get(key, value):
            raise ValueError(f"{self.name}({key}={value}): must be at least {self.least[key]}")


def proper_share(name: str, key: str) -> Callable[[Mapping[str, Any]], None]:
    """A check that an option of an attack is more than 0 and at most 1."""

    def check(options: Mapping[str, Any]) -> None:
        if not 0 < (value := options.get(key, 1)) <= 1:
            raise ValueError(f"{name}({key}={value}): must be more than 0 and at most 1")

    return check


ATTACKS: Table[Entry] = Table("attack")

Register = Callable[[Callable[..., Any]], Entry]


def poison(
    *,
    least: Mapping[str, float] | None = None,
    source: str = "",
    trigger: Callable[..., Any] | None = None,
    check: Callable[[Mapping[str, Any]], None] | None = None,
) -> Register:
    """Register ``f(examples, classes, rng, *, …) -> examples``: what a bad client trains on.

    A backdoor has a ``trigger(examples, classes, *, …)``, which takes options of the same names
    and gives those test examples that show the backdoor, with the labels that the attackers want.
    """
    return _register("poison", "own data", None, least, False, source, trigger, check)


def train(
    *, check: Callable[[Mapping[str, Any]], None] | None = None, source: str = ""
) -> Register:
    """Register ``f(*, …) -> float``: the restraint of a bad client's training, from 0 to 1.

    With ρ it takes steps for (1−ρ)·loss + ρ·‖w − the server's model‖.
    """
    return _register("train", "own data", replaces=False, source=source, check=check)


def forge(
    *,
    knows: str = "nothing",
    unless: Mapping[str, str] | None = None,
    least: Mapping[str, float] | None = None,
    replaces: bool = True,
    source: str = "",
    check: Callable[[Mapping[str, Any]], None] | None = None,
    each: bool = False,
) -> Register:
    """Register ``f(view, *, …)``, which returns what the bad clients send.

    One vector (width,) for all, an iterable of one for each, ``write(updates, rows)``, which puts
    one for each into the matrix (then say each=True), or a `Forged`. With replaces=False
    it may return None: they send what the stages before say, or else what they trained. Messages
    are written one at a time, over the client's own: compute what they share, and assign to
    `view.memory`, before the first. Name what is in there after the attack: "mimic.target".
    """
    return _register("forge", knows, unless, least, replaces, source, check=check, each=each)


def silence(
    *,
    knows: str = "nothing",
    unless: Mapping[str, str] | None = None,
    least: Mapping[str, float] | None = None,
    replaces: bool = True,
    source: str = "",
) -> Register:
    """Register ``f(view, *, …)``, which returns which bad clients do not answer: a bool or a mask.

    With replaces=False some of them may answer, at times.
    """
    return _register("silence", knows, unless, least, replaces, source)


def _register(
    hook: Hook,
    knows: str,
    unless: Mapping[str, str] | None = None,
    least: Mapping[str, float] | None = None,
    replaces: bool = True,
    source: str = "",
    trigger: Callable[..., Any] | None = None,
    check: Callable[[Mapping[str, Any]], None] | None = None,
    each: bool = False,
) -> Register:
    for text in (knows, *(unless or {}).values()):
        parts_of(text)

    def enter(function: Callable[..., Any]) -> Entry:
        name = function.__name__
        separate = each or inspect.isgeneratorfunction(function)
        options = (unless or {}, least or {}, replaces, source, trigger, check, separate)
        ATTACKS[name] = entry = Entry(name, function, hook, knows, *options)
        return entry

    return enter


def parts_of(knows: str) -> frozenset[str]:
    """The parts of a text like ``"honest updates, rule"``."""
    parts = frozenset() if knows == "nothing" else frozenset(knows.split(", "))
    for part in parts:
        if part not in PARTS:
            raise ValueError(unknown("knowledge", part, [*PARTS, "nothing"]))
    return parts
