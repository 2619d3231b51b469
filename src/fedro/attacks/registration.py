"""The decorators `poison`, `train`, `forge`, `silence` and `wait`.

Each turns a function into an attack: a table entry and a typed factory.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, cast

import numpy as np

from fedro.attacks.attack import Attack
from fedro.attacks.table import ATTACKS, AttackEntry, Hook, keyword_options, parse_knowledge
from fedro.attacks.view import View
from fedro.common.options import FITS_FLOAT32, Options, Range
from fedro.common.registration import complete_docstring, make_factory
from fedro.common.registry import unknown
from fedro.common.stages import Stage

P = ParamSpec("P")
Further = Callable[[Mapping[str, Any]], None]

PARAMETERS: dict[Hook, tuple[str, ...]] = {  # what a function is called with, besides its options
    "poison": ("examples", "classes", "rng"),
    "train": (),
    "forge": ("view",),
    "silence": ("view",),
    "wait": ("round",),
}


class AttackFactory(Protocol[P]):
    """What the decorators make of a function: a callable that returns an `Attack`.

    The options are those of the function, all by keyword. The attribute `entry` is what the table
    knows about the attack.

    Example:
        >>> from fedro.attacks import foe
        >>> str(foe(tau=3.0)), foe.entry.source
        ('foe(tau=3.0)', 'Xie et al. 2019')
    """

    entry: AttackEntry

    def __call__(self, *args: P.args, **options: P.kwargs) -> Attack:
        """Return an attack of one stage."""


def poison(
    *,
    source: str = "",
    ranges: Mapping[str, Range] | None = None,
    trigger: Callable[..., Any] | None = None,
) -> Callable[[Callable[Concatenate[Any, int, np.random.Generator, P], Any]], AttackFactory[P]]:
    """Make an attack of a function that changes what a Byzantine client trains on.

    The function is ``f(examples, classes, rng, *, options) -> examples``. It must not modify the
    examples, a named tuple of inputs x and labels y, but return ``examples._replace(…)``.

    Args:
        source: Publication, for the table of attacks.
        ranges: Option → the values that it may have, such as ``{"size": AT_LEAST_ONE}``.
        trigger: For a backdoor, a function ``trigger(examples, classes, *, options)``, with options
            of the same names. It returns the test examples that show the backdoor, labeled as the
            attackers want them.

    Returns:
        A decorator that returns an `AttackFactory`.

    Raises:
        TypeError: The function has other parameters, or an option has no usable type hint.
        ValueError: The name is taken, a range or the trigger names an option that does not exist,
            or a default is out of its range.

    Example:
        >>> @poison()
        ... def zero_labels(examples, classes, rng):
        ...     '''Label every example with class 0.'''
        ...     return examples._replace(y=examples.y * 0)
        >>> str(zero_labels())
        'zero_labels'
    """
    return _decorator(
        "poison", ranges, knows="own data", replaces=False, source=source, trigger=trigger
    )


def train(
    *, source: str = "", ranges: Mapping[str, Range] | None = None
) -> Callable[[Callable[P, float]], AttackFactory[P]]:
    """Make an attack of a function that tells how local training is restrained.

    The function is ``f(*, options) -> float`` and returns ρ, from 0 to 1: Byzantine clients
    minimize (1−ρ)·loss + ρ·‖w − the server's model‖.

    Args:
        source: Publication, for the table of attacks.
        ranges: Option → the values that it may have.

    Returns:
        A decorator that returns an `AttackFactory`.

    Raises:
        TypeError: The function has other parameters, or an option has no usable type hint.
        ValueError: The name is taken, a range names an option that does not exist, or a default is
            out of its range.

    Example:
        >>> @train()
        ... def half_restrained():
        ...     '''Train with half of the weight on staying near the server's model.'''
        ...     return 0.5
        >>> half_restrained().restraint
        0.5
    """
    return _decorator("train", ranges, knows="own data", replaces=False, source=source)


def forge(
    *,
    knows: str = "nothing",
    knows_with: Mapping[str, str] | None = None,
    replaces: bool = True,
    distinct: bool = False,
    source: str = "",
    ranges: Mapping[str, Range] | None = None,
    further: Further | None = None,
) -> Callable[[Callable[Concatenate[View, P], Any]], AttackFactory[P]]:
    """Make an attack of a function that forges what the Byzantine clients send.

    The function is ``f(view, *, options)``. It returns one vector (width,) that all send, an
    iterable with one vector for each, a function ``write(updates, rows)`` that writes one message
    into each of the rows, or a `Forged`. Messages are written one at a time over the clients' own
    updates: an iterable must compute what the messages share, and assign to ``view.memory``,
    before it yields the first one.

    Args:
        knows: What the function uses of the view: "own data", "own update", "honest updates" and
            "rule", joined by commas, or "nothing". It sees nothing else.
        knows_with: Option → what it knows instead if that option is set.
        replaces: With False, the function may return None; then the clients send what the stages
            before decided, or what they trained.
        distinct: Every Byzantine client sends a message of its own. Set it for a function that
            returns ``write``; for generators it is set by itself.
        source: Publication, for the table of attacks.
        ranges: Option → the values that it may have, such as ``{"std": AT_LEAST_ZERO}``.
        further: Called with the given options after all other checks; raises ValueError.

    Returns:
        A decorator that returns an `AttackFactory`.

    Raises:
        TypeError: The function has other parameters, or an option has no usable type hint.
        ValueError: The name is taken, `knows` has unknown parts, a range or `knows_with` names an
            option that does not exist, or a default is out of its range.

    Example:
        >>> @forge(knows="honest updates")
        ... def backwards(view, *, factor: float = 2.0):
        ...     '''Minus the honest mean, times a factor.'''
        ...     return -factor * view.honest_mean
        >>> str(backwards(factor=3.0))
        'backwards(factor=3.0)'
    """
    return _decorator(
        "forge",
        ranges,
        further,
        knows=knows,
        knows_with=knows_with or {},
        replaces=replaces,
        distinct=distinct,
        source=source,
    )


def silence(
    *,
    knows: str = "nothing",
    knows_with: Mapping[str, str] | None = None,
    replaces: bool = True,
    source: str = "",
    ranges: Mapping[str, Range] | None = None,
) -> Callable[[Callable[Concatenate[View, P], Any]], AttackFactory[P]]:
    """Make an attack of a function that decides which Byzantine clients do not reply.

    The function is ``f(view, *, options)``. It returns a bool for all of them, or a mask with one
    value for each row in ``view.byzantine``.

    Args:
        knows: What the function uses of the view, as for `forge`.
        knows_with: Option → what it knows instead if that option is set.
        replaces: With False, some of the clients may reply.
        source: Publication, for the table of attacks.
        ranges: Option → the values that it may have.

    Returns:
        A decorator that returns an `AttackFactory`.

    Raises:
        TypeError: The function has other parameters, or an option has no usable type hint.
        ValueError: The name is taken, `knows` has unknown parts, a range or `knows_with` names an
            option that does not exist, or a default is out of its range.

    Example:
        >>> @silence(replaces=False)
        ... def odd_rounds(view):
        ...     '''Stay silent in odd rounds.'''
        ...     return view.round % 2 == 1
        >>> odd_rounds().trains
        True
    """
    return _decorator(
        "silence",
        ranges,
        knows=knows,
        knows_with=knows_with or {},
        replaces=replaces,
        source=source,
    )


def wait(
    *, source: str = "", ranges: Mapping[str, Range] | None = None
) -> Callable[[Callable[Concatenate[int, P], bool]], AttackFactory[P]]:
    """Make a stage of a function that decides in which rounds the stages after it wait.

    The function is ``f(round, *, options) -> bool``, with rounds counted from 0. Where it returns
    True, the stages after it do nothing: Byzantine clients train on their own data, and send what
    they trained, unless a stage in front of it does something else.

    Args:
        source: Publication, for the table of attacks.
        ranges: Option → the values that it may have.

    Returns:
        A decorator that returns an `AttackFactory`.

    Raises:
        TypeError: The function has other parameters, or an option has no usable type hint.
        ValueError: The name is taken, a range names an option that does not exist, or a default is
            out of its range.

    Example:
        >>> from fedro.attacks import sign_flip
        >>> @wait()
        ... def in_odd_rounds(round):
        ...     '''Behave honestly in odd rounds.'''
        ...     return round % 2 == 1
        >>> attack = in_odd_rounds() | sign_flip()
        >>> str(attack.at(0)), str(attack.at(1))
        ('sign_flip', 'none')
    """
    return _decorator("wait", ranges, knows="nothing", replaces=False, source=source)


def _decorator(
    hook: Hook, ranges: Mapping[str, Range] | None, further: Further | None = None, **facts: Any
) -> Callable[[Callable[..., Any]], Any]:
    for text in (facts["knows"], *facts.get("knows_with", {}).values()):
        parse_knowledge(text)

    def enter(function: Callable[..., Any]) -> Any:
        name = function.__name__
        options = Options(name, function, ranges, numbers=FITS_FLOAT32, further=further)
        _check_declaration(hook, function, options, facts)
        own = {**facts, "distinct": True} if inspect.isgeneratorfunction(function) else facts
        entry = AttackEntry(name, function, options, hook, **own)
        ATTACKS[name] = entry
        return cast(AttackFactory[Any], _factory(entry))

    return enter


def _check_declaration(
    hook: Hook, function: Callable[..., Any], options: Options, facts: Mapping[str, Any]
) -> None:
    name, wanted = function.__name__, PARAMETERS[hook]
    try:
        inspect.signature(function).bind(*wanted, **dict.fromkeys(options))
    except TypeError as error:
        shown = ", ".join([*wanted, "*", "…"])
        raise TypeError(f"@{hook}: define {name}({shown}), with options after *: {error}") from None
    named = [*facts.get("knows_with", {})]
    if (trigger := facts.get("trigger")) is not None:
        named += keyword_options(trigger)
    for key in named:
        if key not in options:
            raise ValueError(f"@{hook}: {unknown(f'option of {name}', key, list(options))}")


def _factory(entry: AttackEntry) -> Any:
    """A function ``(*, options) -> Attack`` with the attribute `entry`."""

    def build(options: dict[str, Any]) -> Attack:
        return Attack((Stage(entry.path, options),))

    facts = [f"Hook: {entry.hook}.", f"Knows: {entry.knows_text}."]
    if entry.source:
        facts.append(f"Reference: {entry.source}.")
    documentation = complete_docstring(entry, facts, "An `Attack` of one stage.")
    return make_factory(entry, build, returns=Attack, documentation=documentation)
