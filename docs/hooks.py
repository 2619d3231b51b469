"""Tables made from the code: ``{{ rules }}``, ``{{ attacks }}`` and ``{{ keys }}`` in any page."""

from typing import Any

from fedro.attacks import listing as attacks
from fedro.experiment import as_markdown as keys
from fedro.rules import listing as rules

TABLES = {"rules": rules.as_markdown, "attacks": attacks.as_markdown, "keys": keys}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for every page."""
    for name, table in TABLES.items():
        if (mark := f"{{{{ {name} }}}}") in markdown:
            markdown = markdown.replace(mark, table())
    return markdown
