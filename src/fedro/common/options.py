"""Options of rules, attacks, models and data sources, and the one way to check them.

The options of a function are its keyword-only parameters. Their types come from the type hints,
their allowed values from `Range` objects that are given when the function is registered::

    options = Options("clip", clip, {"limit": ABOVE_ZERO})
    options.check({"limit": -1.0})  # ValueError: clip(limit=-1.0): limit must be above 0

Mistakes of whoever registers a function (an option without a type hint, a range for an option that
does not exist, a default outside its own range) raise at once, when `Options` is created. Mistakes
of whoever uses it raise in `Options.check`.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from fedro.common.registry import unknown

REQUIRED = inspect.Parameter.empty  # the default of an option that has none
FLOAT32_MAX = 3.4028234663852886e38


@dataclass(frozen=True)
class Condition:
    """A predicate and the words for it, as error messages and tables show them."""

    text: str
    predicate: Callable[..., bool]

    example: ClassVar[str] = "'above 0', lambda value: value > 0"

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not self.text or not callable(self.predicate):
            kind = type(self).__name__
            raise TypeError(
                f"{kind}({self.text!r}, {self.predicate!r}): give a text and a function, as in "
                f"{kind}({self.example})"
            )

    def __str__(self) -> str:
        return self.text


class Range(Condition):
    """The values that an option may have.

    Args:
        text: The range in words, to be read after "must be".
        predicate: ``predicate(value)`` returns whether the option may have this value.

    Raises:
        TypeError: The text is not a text, or the predicate not a function.

    Example:
        >>> Range("above 0", lambda value: value > 0)(0.0)
        False
    """

    def __call__(self, value: Any) -> bool:
        """Return whether the option may have this value."""
        return bool(self.predicate(value))


def at_least(least: float) -> Range:
    """Return the range of the numbers that are not below a limit.

    Args:
        least: The smallest number allowed.

    Returns:
        The range, which reads "at least 2".

    Example:
        >>> at_least(2)(2), at_least(2)(1.5)
        (True, False)
    """
    return Range(f"at least {least}", lambda value: value >= least)


ABOVE_ZERO = Range("above 0", lambda value: value > 0)
AT_LEAST_ZERO = at_least(0)
AT_LEAST_ONE = at_least(1)
PROPER_SHARE = Range("more than 0 and at most 1", lambda value: 0 < value <= 1)
FITS_FLOAT32 = Range(
    f"of a size that float32 can hold, at most {FLOAT32_MAX:.1e}",
    lambda value: -FLOAT32_MAX <= value <= FLOAT32_MAX,
)


@dataclass(frozen=True)
class Option:
    """One option: its name, the types and literals it accepts, its default and its range."""

    name: str
    types: tuple[type, ...]  # of int, float, bool, str and NoneType
    literals: tuple[Any, ...]
    default: Any = REQUIRED
    allowed: Range | None = None

    @property
    def required(self) -> bool:
        """Whether the option has no default, so that it must be given."""
        return self.default is REQUIRED

    @property
    def wanted(self) -> str:
        """What a value must be, to be read after "must be"."""
        choices = [repr(choice) for choice in self.literals]
        types = " | ".join("None" if t is NoneType else t.__name__ for t in self.types)
        if not choices:
            return f"of type {types}"
        *others, last = choices
        texts = f"{', '.join(others)} or {last}" if others else last
        return f"of type {types}, or {texts}" if types else texts

    def problem(self, value: Any) -> str | None:
        """Return what a value must be and is not, or None if it is allowed."""
        if isinstance(value, float) and not math.isfinite(value):
            return "finite"
        if not self._fits(value):
            return self.wanted
        if self.allowed is not None and value is not None and not self.allowed(value):
            return self.allowed.text
        return None

    def _fits(self, value: Any) -> bool:
        if isinstance(value, bool):  # a bool is an int for Python, but hardly what was meant
            literals = any(value is choice for choice in self.literals)
            return literals or bool in self.types
        if any(not isinstance(choice, bool) and value == choice for choice in self.literals):
            return True
        return isinstance(value, self.types) or (float in self.types and isinstance(value, int))


class Options(Mapping[str, Option]):
    """The options of one function by name, and the check of values given for them.

    Args:
        name: Name of the rule, attack, ... for error messages.
        function: Its keyword-only parameters are the options. Each needs a type hint made of
            int, float, bool, str, None and Literal, also joined by ``|``.
        ranges: Option → the values that it may have. None is always allowed where the type allows
            it.
        numbers: A range that every number must be in as well.
        also: Names that the caller treats as options of every function, such as ``b`` of rules.
            Error messages list them, and the function must not use them.
        further: Called with the given options after all other checks; raises ValueError.

    Raises:
        TypeError: An option has no type hint or an unsupported one, a range is not a `Range`, or a
            default is not of its type.
        ValueError: A range is for an option that the function does not have, a default is out of
            its range, or a name in `also` is used.

    Example:
        >>> def clip(rows, *, limit: float = 1.0): ...
        >>> Options("clip", clip, {"limit": ABOVE_ZERO}).check({"limit": -1.0})
        Traceback (most recent call last):
        ValueError: clip(limit=-1.0): limit must be above 0
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        ranges: Mapping[str, Range] | None = None,
        *,
        numbers: Range | None = None,
        also: tuple[str, ...] = (),
        further: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        self.name, self.numbers, self.also, self.further = name, numbers, also, further
        parameters = _keyword_only(function)
        hints = _hints(name, function, parameters)
        ranges = _checked_ranges(name, ranges or {}, list(parameters))
        self._options = {
            key: Option(key, *_accepted(name, key, hints[key]), parameter.default, ranges.get(key))
            for key, parameter in parameters.items()
        }
        self._check_declaration()

    def __getitem__(self, name: str) -> Option:
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def defaults(self) -> dict[str, Any]:
        """The default of each option that has one."""
        return {name: option.default for name, option in self.items() if not option.required}

    def __str__(self) -> str:
        """The options with their defaults, as in ``(tau=2.0)``; empty if there are none."""
        texts = [
            option.name if option.required else f"{option.name}={option.default!r}"
            for option in self.values()
        ]
        return f"({', '.join(texts)})" if texts else ""

    def check(self, given: Mapping[str, Any]) -> None:
        """Raise ValueError unless the given options are known and allowed, and none is missing."""
        for key, value in given.items():
            if key not in self:
                raise ValueError(unknown(f"option of {self.name}", key, [*self, *self.also]))
            problem = self._problem(key, value)
            if problem is not None:
                raise ValueError(f"{self.name}({key}={_shown(value)}): {key} must be {problem}")
        for option in self.values():
            if option.required and option.name not in given:
                example = "'…'" if option.types == (str,) else "1.0"
                raise ValueError(
                    f"{self.name} needs {option.name}=…, as in {self.name}({option.name}={example})"
                )
        if self.further is not None:
            self.further(given)

    def complete(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given options and the defaults of the others."""
        defaults = {key: option.default for key, option in self.items() if not option.required}
        return {**defaults, **given}

    def _problem(self, key: str, value: Any) -> str | None:
        problem = self[key].problem(value)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if problem is None and number and self.numbers is not None and not self.numbers(value):
            return self.numbers.text
        return problem

    def _check_declaration(self) -> None:
        for name in self.also:
            if name in self:
                raise ValueError(f"{self.name}: the name {name!r} is taken, rename that option")
        for option in self.values():
            if option.required:
                continue
            problem = self._problem(option.name, option.default)
            if problem is not None:
                error = ValueError if option._fits(option.default) else TypeError
                raise error(
                    f"{self.name}: the default {option.name}={_shown(option.default)} must be "
                    f"{problem}"
                )


def _keyword_only(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(function).parameters
    return {key: p for key, p in parameters.items() if p.kind is p.KEYWORD_ONLY}


def _hints(
    name: str, function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]
) -> dict[str, Any]:
    """The type hints of the options only: those of other parameters need not be resolvable."""
    for key, parameter in parameters.items():
        if parameter.annotation is parameter.empty:
            raise TypeError(f"{name}: option {key!r} has no type hint; write {key}: float, …")
    annotated = SimpleNamespace(__annotations__={k: p.annotation for k, p in parameters.items()})
    try:
        scope = getattr(inspect.unwrap(function), "__globals__", {})
        return get_type_hints(annotated, globalns=scope)
    except NameError as error:
        raise TypeError(f"{name}: cannot resolve a type hint of an option: {error}") from None


def _checked_ranges(
    name: str, ranges: Mapping[str, Range], options: list[str]
) -> Mapping[str, Range]:
    for key, allowed in ranges.items():
        if key not in options:
            raise ValueError(f"{name}: a range for an {unknown('option', key, options)}")
        if not isinstance(allowed, Range):
            raise TypeError(
                f"{name}: the range of {key!r} is {allowed!r}: give a Range, such as ABOVE_ZERO or "
                "Range('above 0', lambda value: value > 0)"
            )
    return ranges


def _accepted(name: str, key: str, hint: Any) -> tuple[tuple[type, ...], tuple[Any, ...]]:
    """The plain types and the literals that a type hint accepts."""
    types: list[type] = []
    literals: list[Any] = []
    for part in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
        if get_origin(part) is Literal:
            literals.extend(get_args(part))
        elif part in (int, float, bool, str, NoneType):
            types.append(part)
        else:
            text = hint.__name__ if isinstance(hint, type) and not get_args(hint) else hint
            raise TypeError(
                f"{name}: option {key!r} has the type hint {text}; options can be int, float, "
                "bool, str, None, Literal[…], or several of these joined by |"
            )
    return tuple(types), tuple(literals)


def _shown(value: Any) -> str:
    """A value in an error message; a huge integer would fill the screen."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)


def arguments_for(
    text: str,
    function: Callable[..., Any],
    options: Mapping[str, Any],
    offered: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the arguments for a user's function.

    These are the given options, and of what is offered whatever the function has a parameter for.

    Raises:
        ValueError: An option is unknown to the function, or an argument that it needs is missing.
    """
    parameters = inspect.signature(function).parameters
    named = {
        key: parameter.default is parameter.empty
        for key, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for key in options:
        if key not in named and not anything:
            raise ValueError(unknown(f"option of {text}", key, list(named)))
    given = {key: value for key, value in offered.items() if key in named and value is not None}
    given |= options
    for key, needed in named.items():
        if needed and key not in given:
            raise ValueError(f"{text} needs {key}: write {text}({key}=…)")
    return given
