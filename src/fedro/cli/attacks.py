"""``fedro attacks``: list all attacks."""

from fedro.cli.common import Markdown, app, explains_errors, print_listing


@app.command()
@explains_errors
def attacks(markdown: Markdown = False) -> None:
    """List all attacks: what Byzantine clients do, and what they must know for it."""
    from fedro.attacks.table import as_markdown, as_text

    print_listing(as_markdown() if markdown else as_text())
