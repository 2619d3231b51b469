"""The table of rules and mixers: the parser, the command line, the docs and the tests read it."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from fedro.coefficients import PROOFS, Coefficient
from fedro.registry import Table, check_options, options_of

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

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """What can be set, by name."""
        return options_of(self.function)

    def check_options(self, given: dict[str, Any]) -> None:
        """Raise unless every option is known, of its type, and none is missing."""
        check_options(self.name, self.function, given, also=["b"])

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
