"""What the documents show works as it is written there."""

import importlib.util
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest
import typer.main

import fedro
from fedro.cli import app
from fedro.rules import RULES
from fedro.rules.table import as_markdown, as_text
from pages import REASONS, RUN, Block, blocks_of, pages, run_page

ROOT = Path(__file__).parents[1]
PAGES = {str(page.relative_to(ROOT)): page for page in pages(ROOT)}
BLOCKS = {name: blocks_of(page.read_text(), name) for name, page in PAGES.items()}
MAX_BLOCKS_NOT_RUN = 30
TRAINING_PAGES = (  # they train models: `make soak` and CI run them
    "docs/howto/add-an-attack.md",
    "docs/howto/local-steps.md",
    "docs/howto/move-to-flower.md",
    "docs/howto/own-model-and-data.md",
    "docs/report.md",
    "docs/sweeps.md",
    "docs/training.md",
)


def runs(block: Block) -> bool:
    return block.not_run is None and block.language in RUN


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[None]]]:
    """The pages that were asked for, two at a time."""
    chosen = [
        item.callspec.params["page"]
        for item in request.session.items
        if item.originalname == "test_page_is_as_it_says"  # type: ignore[attr-defined]
    ]
    pool = ThreadPoolExecutor(max_workers=2)
    folder = tmp_path_factory.mktemp
    yield {page: pool.submit(run_page, BLOCKS[page], folder("page"), 600) for page in chosen}
    pool.shutdown(cancel_futures=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(name, marks=[pytest.mark.soak] * (name in TRAINING_PAGES))
        for name, blocks in BLOCKS.items()
        if any(map(runs, blocks))
    ],
)
def test_page_is_as_it_says(page: str, outcomes: dict[str, Future[None]]) -> None:
    outcomes[page].result()


def test_blocks_that_are_not_run_have_a_reason_and_are_few() -> None:
    shown = [block for blocks in BLOCKS.values() for block in blocks if not runs(block)]
    for block in shown:
        assert block.not_run is not None, f"{block.place}: {block.language or 'no language'}?"
        assert block.not_run.startswith(REASONS), f"{block.place}: {block.not_run}"
    listed = "\n".join(f"{block.place}: {block.not_run}" for block in shown)
    assert len(shown) <= MAX_BLOCKS_NOT_RUN, listed
    print(listed)


def test_settings_are_in_named_files() -> None:
    for block in (block for blocks in BLOCKS.values() for block in blocks if runs(block)):
        assert block.language != "toml" or block.title, f'{block.place}: write toml title="….toml"'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("```python\nimport fedro\nfedro.plann\n```", "page.md:1"),
        ("```python\nimport warnings\nwarnings.warn('old')\n```", "UserWarning"),
        ("```python\nprint(1 + 1)  # 3: not so\n```", "nothing printed begins with 3"),
        ("```bash\nfedro plan --clients 10\necho done\n```", "exit code 2"),
        ("```bash\nfedro --version\n```\n\n```text\n9.9\n```", "it prints:\n0.1"),
        ('```toml title="a.toml"\nrounds = \n```', "TOMLDecodeError"),
        (
            "```bash\necho it took 3 s\n```\n<!-- numbers vary: time -->\n```text\nin 3 s\n```",
            "it prints",
        ),
    ],
)
def test_a_page_that_is_wrong_fails(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=re.escape(told)):
        run_page(blocks_of(text, "page.md"), tmp_path, seconds=60)


@pytest.mark.slow
def test_blocks_of_a_page_go_on_from_each_other(tmp_path: Path) -> None:
    text = (
        '```python title="mine.py"\nanswer = 42\n```\n```python\nimport mine\n```\n'
        "```python\nprint(mine.answer)  # 42\n```\n```text\n4…\n```\n"
        "```bash\npython -c 'import mine; print(mine.answer / 5, \"s\")'\n```\n\n"
        "<!-- numbers vary: an example -->\n```text\n1.25   s\n```\n"
        "<!-- not run: takes long -->\n```bash\nfalse\n```\n"
    )
    run_page(blocks_of(text, "page.md"), tmp_path, seconds=60)


@pytest.mark.parametrize("command", ["pip install fedro", "flwr run .", "make test"])
def test_a_page_that_would_reach_beyond_its_folder_is_not_run(command: str, tmp_path: Path) -> None:
    text = f"```bash\ntouch began\n```\n```bash\n{command}\n```\n"
    with pytest.raises(AssertionError, match=r"page\.md:4.*mark the block"):
        run_page(blocks_of(text, "page.md"), tmp_path, seconds=60)
    assert not (tmp_path / "began").exists()


@pytest.mark.parametrize("text", ["```text\nalone\n```", "```bash\nls\n"])
def test_a_page_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"page\.md"):
        blocks_of(text, "page.md")


def test_what_is_counted_is_right() -> None:
    mixers = sum(entry.mixer for entry in RULES.values())
    rules, attacks = len(RULES) - mixers, len(fedro.ATTACKS) - 1  # without `none`
    assert f"all {rules} rules and {mixers} mixers" in PAGES["README.md"].read_text()
    page = PAGES["docs/comparison.md"].read_text()
    assert f"| {rules} (`fedro rules`) |" in page
    assert f"| {attacks} (`fedro attacks`) |" in page


def test_every_rule_is_listed() -> None:
    markdown, text = as_markdown(), as_text().plain
    for name, entry in RULES.items():
        assert f"| {name}" in markdown
        assert entry.summary in text
        assert entry.summary.endswith(".") or ";" in entry.summary


def generate() -> ModuleType:
    """The program that makes the reference."""
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_has_every_command_key_and_public_name() -> None:
    pytest.importorskip("flwr")
    reference = generate()
    commands, keys, api = reference.commands(), reference.keys(), reference.api()
    group = typer.main.get_command(app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        part = commands.partition(f"## fedro {name}\n")[2].partition("\n## ")[0]
        for parameter in command.params:
            assert parameter.help.replace("|", r"\|") in part
            assert all(f"`{option}`" in part for option in parameter.opts if option[0] == "-")
    assert all(f"| `{key}` |" in keys for key in fedro.Experiment.model_fields)
    listed = {name for names in reference.API.values() for name in names}
    assert {name for name in fedro.__all__ if name[0] != "_"} <= listed
    assert all(f"### fedro.{name}\n" in api for name in listed)
    assert " at 0x" not in api


def test_generated_parts_are_current() -> None:
    pytest.importorskip("flwr")
    reference = generate()
    parts = [
        part["name"]
        for page in PAGES.values()
        for part in reference.GENERATED.finditer(page.read_text())
    ]
    assert sorted(parts) == sorted(reference.PARTS)
    old = [str(path.relative_to(ROOT)) for path in reference.outdated()]
    assert old == [], f"{', '.join(old)} not current: run `{reference.COMMAND}`"


def test_a_docstring_becomes_markdown() -> None:
    pytest.importorskip("flwr")
    text = """Do a thing with a_b.

    Args:
        first: What comes
            first.
        second (int): The other.

    Returns:
        Something.

    Raises:
        ValueError: Never.

    Example:
        >>> 1 + 1
        2
    """
    assert generate()._docstring(inspect.cleandoc(text)).splitlines() == [
        *("Do a thing with a\\_b.", "", "**Arguments**", ""),
        *("- `first`: What comes first.", "- `second`: The other.", ""),
        *("**Returns:** Something.", "", "**Raises**", "", "- `ValueError`: Never.", ""),
        *("```pycon", ">>> 1 + 1", "2", "```"),
    ]


@pytest.mark.parametrize(
    "page", [*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")], ids=lambda p: p.name
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_is_in_the_navigation() -> None:
    settings = (ROOT / "mkdocs.yml").read_text()
    for page in ROOT.glob("docs/**/*.md"):
        name = str(page.relative_to(ROOT / "docs"))
        assert re.search(rf"[ ]{re.escape(name)}$", settings, flags=re.MULTILINE), name


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="needs MkDocs: make docs")
def test_the_site_is_built_without_warnings(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_comparison_is_what_its_command_prints() -> None:
    pytest.importorskip("byzpy")
    pytest.importorskip("flwr")
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "behavior.py"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    page = PAGES["docs/comparison.md"].read_text()
    for line in done.stdout.splitlines()[2:]:
        assert line in page
