"""What is made from the code: ``{{ rules }}``, ``{{ commands }}`` … in any page."""

from typing import Any

from generate import TABLES


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for every page."""
    for name, table in TABLES.items():
        if (mark := f"{{{{ {name} }}}}") in markdown:
            markdown = markdown.replace(mark, table())
    return markdown
