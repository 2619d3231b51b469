"""The table of attacks, which the parser, the command line, the docs and the tests read."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fedro.attacks.view import KNOWLEDGE
from fedro.common.registration import RegisteredFunction
from fedro.common.registry import Table, unknown
from fedro.common.text import markdown_table

if TYPE_CHECKING:
    from rich.text import Text

Hook = Literal["wait", "poison", "train", "forge", "silence"]


@dataclass(frozen=True)
class AttackEntry(RegisteredFunction):
    """What the table knows about one attack.

    Attributes:
        name: Name of the attack.
        function: The registered function.
        options: The options of the function.
        hook: Where the attack acts: "wait", "poison", "train", "forge" or "silence".
        knows: What the attack sees, such as "honest updates, rule", or "nothing".
        knows_with: Option → what the attack sees instead if that option is set.
        replaces: Whether the clients never send what they trained.
        distinct: Whether every Byzantine client sends a message of its own.
        source: Publication.
        trigger: Of a backdoor: makes the test examples that show it.

    Example:
        >>> ATTACKS["alie"].hook, ATTACKS["alie"].knows
        ('forge', 'honest updates')
    """

    hook: Hook
    knows: str = "nothing"
    knows_with: Mapping[str, str] = field(default_factory=dict)
    replaces: bool = True
    distinct: bool = False
    source: str = ""
    trigger: Callable[..., Any] | None = None

    @property
    def knows_text(self) -> str:
        """What the attack sees, also with each option that changes it."""
        changes = (f"{key}=True: {text}" for key, text in self.knows_with.items())
        return "; ".join([self.knows, *changes])

    def knowledge(self, given: Mapping[str, Any]) -> frozenset[str]:
        """Return what the attack sees with these options."""
        for key, text in self.knows_with.items():
            if given.get(key, self.options[key].default):
                return parse_knowledge(text)
        return parse_knowledge(self.knows)

    def triggered(self, examples: Any, classes: int, given: Mapping[str, Any]) -> Any:
        """Return the examples that show the backdoor with these options; None without one."""
        if self.trigger is None:
            return None
        values = self.options.complete(given)
        wanted = keyword_options(self.trigger)
        return self.trigger(examples, classes, **{key: values[key] for key in wanted})


def keyword_options(function: Callable[..., Any]) -> list[str]:
    """Return the names of the keyword-only parameters."""
    parameters = inspect.signature(function).parameters.items()
    return [key for key, parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def parse_knowledge(text: str) -> frozenset[str]:
    """Return the parts of a text like ``"honest updates, rule"``.

    Raises:
        ValueError: A part is unknown.
    """
    parts = frozenset() if text == "nothing" else frozenset(text.split(", "))
    for part in parts:
        if part not in KNOWLEDGE:
            raise ValueError(unknown("knowledge", part, [*KNOWLEDGE, "nothing"]))
    return parts


ATTACKS: Table[AttackEntry] = Table("attack")

HEADER = ("name", "what the Byzantine clients do", "what else they know", "reference")


def _cells() -> Iterator[tuple[str, ...]]:
    """A line of the printed table for each attack."""
    for entry in ATTACKS.values():
        yield f"{entry.name}{entry.options}", entry.summary, entry.knows_text, entry.source


def as_text() -> "Text":
    """Return the table for the terminal, three lines for each attack."""
    from rich.text import Text

    text = Text(
        "Join attacks with |. Poisoning stages all apply, one after the other; of the forging "
        "stages, the last one decides what is sent.\n"
    )
    for name, summary, knows, source in _cells():
        text.append(f"\n{name}", style="bold")
        text.append(f"\n  {summary}" + (f" ({source})" if source else ""))
        text.append(f"\n  knows {knows}\n", style="dim")
    return text


def as_markdown() -> str:
    """Return the table for documents."""
    return markdown_table(HEADER, _cells())
