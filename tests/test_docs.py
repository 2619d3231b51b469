"""What the documents show works as it is written there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedro.rules import RULES
from fedro.rules.listing import as_markdown, as_text

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "docs/rules.md"]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", block],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, block + done.stderr


def test_numbers_in_the_readme_are_what_the_code_prints() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    plan = subprocess.run([sys.executable, "-c", blocks[0]], capture_output=True, text=True)
    assert plan.stdout.startswith("27 9\n0.994")
    assert "1.0 0.125\n15\n" in plan.stdout


def test_every_rule_is_listed() -> None:
    markdown, text = as_markdown(), as_text().plain
    for name, entry in RULES.items():
        assert f"| {name}" in markdown
        assert entry.summary in text
        assert entry.summary.endswith(".") or ";" in entry.summary


@pytest.mark.parametrize(
    "page", [*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")], ids=lambda p: p.name
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
