"""The table of rules and mixers, from which the parser, the command line and the docs read."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from fedro.common.options import Condition
from fedro.common.registration import RegisteredFunction
from fedro.common.registry import Table
from fedro.common.text import markdown_table
from fedro.common.user_code import is_users
from fedro.rules.rows import NoAggregateError

if TYPE_CHECKING:
    from rich.text import Text

Reference = Literal["no", "optional", "needed"]


class Validity(Condition):
    """For which numbers of rows n and of Byzantine rows b a rule may be used.

    Args:
        text: The condition as error messages and tables show it.
        predicate: ``predicate(n, b)`` returns whether the rule may be used.

    Example:
        >>> Validity("3b < n", lambda n, b: 3 * b < n)(10, 3)
        True
    """

    example: ClassVar[str] = "'3b < n', lambda n, b: 3 * b < n"

    def __call__(self, n: int, b: int) -> bool:
        """Return whether a rule may be used with n rows of which b may be Byzantine."""
        return bool(self.predicate(n, b))


MAJORITY = Validity("2b < n", lambda n, b: 2 * b < n)
BULYAN_SIZE = Validity("n ≥ 4b+3", lambda n, b: n >= 4 * b + 3)
ANY = Validity("any b", lambda n, b: b < n)


@dataclass(frozen=True)
class RuleEntry(RegisteredFunction):
    """What the table `RULES` knows about one rule or mixer.

    Attributes:
        name: Name in the table.
        function: ``function(rows, *, options)`` returns the aggregate, or rows if it is a mixer.
        options: The options of the function, which check the values given for them.
        mixer: Whether it comes before a rule and changes the rows.
        valid: For which n and b it may be used.
        cost: Running time.
        source: Publication.
        weighted: Whether it takes data-set sizes as weights.
        reference: Whether it uses a trusted vector: "no", "optional" or "needed".
        kappa: The proved κ for the default options as a function of n and b, and for a mixer also
            of the κ of what comes after it. A formula with a parameter `byzantine` also covers
            fewer than b Byzantine rows. None if there is no proof.
        kappa_source: Where the proof is.

    Example:
        >>> from fedro.rules import RULES
        >>> RULES["krum"].valid.text, RULES["krum"].source
        ('2b < n', 'Blanchard et al. 2017')
    """

    mixer: bool = False
    valid: Validity = MAJORITY
    cost: str = ""
    source: str = ""
    weighted: bool = False
    reference: Reference = "no"
    kappa: Callable[..., float] | None = None
    kappa_source: str = ""

    @property
    def kappa_text(self) -> str:
        """The formula of κ and the source of its proof."""
        if self.kappa is None:
            return "none proved"
        formula = (self.kappa.__doc__ or "proved").partition("\n")[0].rstrip(".")
        return f"{formula} [{self.kappa_source}]"

    @property
    def kappa_takes_byzantine(self) -> bool:
        """Whether the formula of κ also takes the true number of Byzantine rows."""
        return self.kappa is not None and "byzantine" in inspect.signature(self.kappa).parameters

    @property
    def safe_kappa(self) -> Callable[..., float] | None:
        """The function `kappa`; if it is the user's, its exceptions name the line that failed."""
        if self.kappa is None or not is_users(self.kappa):
            return self.kappa
        kappa = self.kappa
        guard = self.user_code("κ of the rule", function=kappa)
        return guard.wrap(lambda *numbers, **fewer: float(kappa(*numbers, **fewer)))

    def allows(self, n: int, b: int) -> bool:
        """Whether the rule may be used with n rows of which b may be Byzantine."""
        with self.user_code("condition of the rule", function=self.valid.predicate):
            return self.valid(n, b)

    def check(self, n: int, b: int) -> None:
        """Raise NoAggregateError unless the rule may be used with n rows, b of them Byzantine."""
        if not self.allows(n, b):
            raise NoAggregateError(f"{self.name} with n={n} rows and b={b}: needs {self.valid}")


RULES: Table[RuleEntry] = Table("rule")

HEADER = ("name", "what it does", "valid for", "κ", "cost", "reference")


def _cells() -> Iterator[tuple[str, ...]]:
    """A line of the printed table for each mixer, then for each rule."""
    for entry in sorted(RULES.values(), key=lambda entry: not entry.mixer):
        valid = f"{entry.valid}{', trusted reference' if entry.reference == 'needed' else ''}"
        name = f"{entry.name}{entry.options}{' |' if entry.mixer else ''}"
        yield name, entry.summary, valid, entry.kappa_text, entry.cost, entry.source


def as_text() -> "Text":
    """Return the table for the terminal, three lines for each entry."""
    from rich.text import Text

    text = Text(
        "Mixers (name |) come before a rule. r = b/(n−2b), the least κ any rule can have.\n"
    )
    for name, summary, valid, kappa, cost, source in _cells():
        text.append(f"\n{name}", style="bold")
        text.append(f"\n  {summary}" + (f" ({source})" if source else ""))
        text.append(f"\n  {valid}; κ: {kappa}; cost {cost}\n", style="dim")
    return text


def as_markdown() -> str:
    """Return the table for documents."""
    return markdown_table(HEADER, _cells())
