"""The table of rules for people, made from the table itself."""

from collections.abc import Iterator

from rich.text import Text

from fedro.rules.table import RULES, Entry

HEADER = ("name", "what it does", "valid for", "κ", "cost", "reference")


def cells() -> Iterator[tuple[str, ...]]:
    """A line for each mixer and rule."""
    for entry in sorted(RULES.values(), key=lambda entry: not entry.mixer):
        valid = entry.valid + (", trusted reference" if entry.reference == "needed" else "")
        name = entry.name + _options(entry) + (" |" if entry.mixer else "")
        yield name, entry.summary, valid, _kappa(entry), entry.cost, entry.source


def _options(entry: Entry) -> str:
    parts = [
        key if option.default is option.empty else f"{key}={option.default!r}"
        for key, option in entry.options.items()
    ]
    return f"({', '.join(parts)})" if parts else ""


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
    lines = [HEADER, ("---",) * len(HEADER), *cells()]
    escaped = (" | ".join(cell.replace("|", r"\|") for cell in line) for line in lines)
    return "\n".join(f"| {line} |" for line in escaped)
