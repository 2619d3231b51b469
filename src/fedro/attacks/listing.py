"""The table of attacks for people, made from the table itself."""

from collections.abc import Iterator

from rich.text import Text

from fedro.attacks.table import ATTACKS, Entry
from fedro.common.registry import signature
from fedro.common.text import markdown_table

HEADER = ("name", "what the bad clients send", "what they know", "reference")


def cells() -> Iterator[tuple[str, ...]]:
    """A line for each attack."""
    for entry in ATTACKS.values():
        yield entry.name + signature(entry.function), entry.summary, _knows(entry), entry.source


def _knows(entry: Entry) -> str:
    return "; ".join([entry.knows, *(f"{key}=True: {text}" for key, text in entry.unless.items())])


def as_text() -> Text:
    """For the terminal, two lines each."""
    text = Text("Join attacks with |: the data go through all, the last message counts.\n")
    for name, summary, knows, source in cells():
        text.append(f"\n{name}", style="bold")
        text.append(f"\n  {summary}" + (f" ({source})" if source else ""))
        text.append(f"\n  knows {knows}\n", style="dim")
    return text


def as_markdown() -> str:
    """For documents."""
    return markdown_table(HEADER, cells())
