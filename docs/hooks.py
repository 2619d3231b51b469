"""Tables in the documentation made from the code: ``{{ rules }}`` is the table of rules."""

from typing import Any

from fedro.rules.listing import as_markdown


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for every page."""
    return markdown.replace("{{ rules }}", as_markdown())
