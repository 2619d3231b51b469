"""``fedro rules``: list all rules and mixers."""

from fedro.cli.common import Markdown, app, explains_errors, print_listing


@app.command()
@explains_errors
def rules(markdown: Markdown = False) -> None:
    """List all rules and mixers: what they do, when they can be used, what is proved."""
    from fedro.rules.table import as_markdown, as_text

    print_listing(as_markdown() if markdown else as_text())
