"""The table of rules and mixers: the parser, the command line, the docs and the tests read it."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from fedro.coefficients import PROOFS, Coefficient
from fedro.registry import Table, unknown

VALID: dict[str, Callable[[int, int], bool]] = {
    "2b < n": lambda n, b: 2 * b < n,
    "n ≥ 4b+3": lambda n, b: n >= 4 * b + 3,
    "any b": lambda n, b: b < n,
}
Reference = Literal["no", "optional", "needed"]


@dataclass(frozen=True)
class Entry:
    """One rule or mixer: what it does, when it may be used, what is proved about it."""

    name: str
    function: Callable[..., Any]
    mixer: bool
    valid: str
    cost: str
    source: str
    weighted: bool
    reference: Reference

    @property
    def summary(self) -> str:
        """What it does, in a line."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def proof(self) -> Coefficient | None:
        """Its proved κ, if there is one."""
        return PROOFS.get(self.name)

    @cached_property
    def options(self) -> dict[str, inspect.Parameter]:
        """What can be set, by name."""
        parameters = inspect.signature(self.function).parameters
        return {k: p for k, p in parameters.items() if p.kind is p.KEYWORD_ONLY}

    def check_options(self, given: dict[str, Any]) -> None:
        """Raise unless every option is known, of its type, and none is missing."""
        for name, value in given.items():
            if name not in self.options:
                known = [*self.options, "b"]
                raise ValueError(unknown(f"option of {self.name}", name, known))
            self._check_type(name, value)
        for name, parameter in self.options.items():
            if parameter.default is parameter.empty and name not in given:
                raise ValueError(f"{self.name} needs {name}=…, as in {self.name}({name}=1.0)")

    def _check_type(self, name: str, value: object) -> None:
        kind = str(self.options[name].annotation).removeprefix("<class '").removesuffix("'>")
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{self.name}({name}={value}): {name} must be finite")
        fits = {
            "bool": isinstance(value, bool),
            "int": number and isinstance(value, int),
            "int | None": value is None or (number and isinstance(value, int)),
            "float": number,
        }
        if not fits.get(kind, True):
            raise ValueError(f"{self.name}({name}={value!r}): {name} must be of type {kind}")

    def check(self, n: int, b: int) -> None:
        """Raise unless this rule may be used with n rows of which b may be bad."""
        if not VALID[self.valid](n, b):
            raise ValueError(f"{self.name} with n={n} rows and b={b}: needs {self.valid}")


RULES: Table[Entry] = Table("rule")


def register(
    *,
    mixer: bool = False,
    valid: str = "2b < n",
    cost: str = "",
    source: str = "",
    weighted: bool = False,
    reference: Reference = "no",
    kappa: Callable[..., float] | None = None,
    kappa_source: str = "",
) -> Callable[[Callable[..., Any]], Entry]:
    """Put a function into the table under its own name, with κ(n, b) if one is proved."""

    def enter(function: Callable[..., Any]) -> Entry:
        name = function.__name__
        entry = Entry(name, function, mixer, valid, cost, source, weighted, reference)
        RULES[name] = entry
        if kappa is not None:
            PROOFS[name] = Coefficient(kappa, kappa_source, mixer)
        return entry

    return enter
