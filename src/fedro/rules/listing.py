"""The table of rules for people, made from the table itself."""

from collections.abc import Iterator

from rich.text import Text

from fedro.common.registry import signature
from fedro.common.text import markdown_table
from fedro.rules.table import RULES, Entry

HEADER = ("name", "what it does", "valid for", "κ", "cost", "reference")


def cells() -> Iterator[tuple[str, ...]]:
    """A line for each mixer and rule."""
    for entry in sorted(RULES.values(), key=lambda entry: not entry.mixer):
        valid = entry.valid + (", trusted reference" if entry.reference == "needed" else "")
        name = entry.name + signature(entry.function) + (" |" if entry.mixer else "")
        yield name, entry.summary, valid, _kappa(entry), entry.cost, entry.source


def _kappa(entry: Entry) -> str:
    if entry.proof is None:
        return "none proved"
    formula = (entry.proof.kappa.__doc__ or "proved").partition("\n")[0].rstrip(".")
    return f"{formula} [{entry.proof.source}]"


def as_text() -> Text:
    """For the terminal, two lines each."""
    text = Text(
        "Mixers (name |) come before a rule. r = b/(n−2b), the least κ any rule can have.\n"
    )
    for name, summary, valid, kappa, cost, source in cells():
        text.append(f"\n{name}", style="bold")
        text.append(f"\n  {summary}" + (f" ({source})" if source else ""))
        text.append(f"\n  {valid}; κ: {kappa}; cost {cost}\n", style="dim")
    return text


def as_markdown() -> str:
    """For documents."""
    return markdown_table(HEADER, cells())
