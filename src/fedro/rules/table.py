"""The table of rules and mixers: the parser, the command line, the docs and the tests read it."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedro.common.registry import Table, check_options, options_of
from fedro.rules.kappa import PROOFS, Coefficient

VALID: dict[str, Callable[[int, int], bool]] = {
    "2b < n": lambda n, b: 2 * b < n,
    "n ≥ 4b+3": lambda n, b: n >= 4 * b + 3,
    "any b": lambda n, b: b < n,
}
ALLOWED: dict[str, Callable[[float], bool]] = {
    "above 0": lambda value: value > 0,
    "above 0, at most 0.001": lambda value: 0 < value <= 1e-3,
    "at least 0": lambda value: value >= 0,
    "at least 1": lambda value: value >= 1,
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
    allowed: Mapping[str, str]  # values of options: a key of ALLOWED for each

    @property
    def summary(self) -> str:
        """What it does, in a line."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def proof(self) -> Coefficient | None:
        """Its proved κ, if there is one."""
        return PROOFS.get(self.name)

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """What can be set, by name."""
        return options_of(self.function)

    def check_options(self, given: dict[str, Any]) -> None:
        """Raise unless every option is known, of its type, and none is missing."""
        check_options(self.name, self.function, given, also=["b"])
        for option, text in self.allowed.items():
            value = given.get(option)
            if value is not None and not ALLOWED[text](value):
                raise ValueError(f"{self.name}({option}={value}): {option} must be {text}")

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
    allowed: Mapping[str, str] | None = None,
    kappa: Callable[..., float] | None = None,
    kappa_source: str = "",
) -> Callable[[Callable[..., Any]], Entry]:
    """Put a function into the table under its own name, with κ(n, b) if one is proved."""

    def enter(function: Callable[..., Any]) -> Entry:
        name = function.__name__
        entry = Entry(
            name, function, mixer, valid, cost, source, weighted, reference, allowed or {}
        )
        RULES[name] = entry
        if kappa is not None:
            PROOFS[name] = Coefficient(kappa, kappa_source, mixer)
        return entry

    return enter
