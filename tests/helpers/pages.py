"""Pages of the documentation as programs: their blocks, run in order, in a folder of their own.

A page's blocks are run in one process, top to bottom:

- ``python`` blocks share one namespace, as in a notebook; warnings are errors;
- ``bash`` blocks stop at the first command that fails;
- blocks with a title, like ``toml title="own.toml"`` or ``python title="my_rule.py"``, are written
  to that file instead;
- a ``text`` block right after one that ran is what it prints; ``…`` in it stands for anything.
  ``print(x)  # 27`` in a python block is held against what is printed, too.

Two comments, on the line before a block, say otherwise:

    <!-- not run: downloads -->           the block is shown only; the reason is one of REASONS
    <!-- numbers vary: training -->       of this output the words are compared, the numbers not
"""

import contextlib
import io
import json
import linecache
import os
import re
import subprocess
import sys
import tomllib
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REASONS = (
    *("installs", "downloads", "takes long", "needs real clients", "make", "a fragment"),
    "another page runs it",
)
OLD_TYPER = "ignore:'click.:DeprecationWarning"  # as in pyproject.toml; Flower imports it
RUN = ("python", "bash", "toml")
NEVER = re.compile(
    r"\bpip3? install|\bflwr\b|\bflower-\w|\bssh-keygen|RAY_ADDRESS|\bsudo\b|\bmake\b|"
    r"\bray (?:start|stop|get)"
)
FENCE = re.compile(
    r"(?:^ *<!-- (?P<mark>not run|numbers vary): (?P<reason>[^\n]*?) -->\n)?"
    r"^(?P<indent> *)(?P<ticks>```+)(?P<language>[\w-]*)(?P<info>[^\n]*)\n"
    r"(?P<body>.*?)^(?P=indent)(?P=ticks) *$",
    flags=re.DOTALL | re.MULTILINE,
)
GENERATED = re.compile(r"<!-- generated: \w+ -->.*?<!-- end generated -->", flags=re.DOTALL)
TITLE = re.compile(r'title="([^"]+)"')
STATED = re.compile(r"^(?:print\(.*|\))  # (-?\d[^:,;\n]*)", flags=re.MULTILINE)
NUMBER = re.compile(r"\d[\d,.]*(?:e[-+]?\d+)?")


@dataclass
class Block:
    """A block of a page."""

    page: str
    line: int
    language: str
    body: str
    title: str | None = None
    not_run: str | None = None
    output: str | None = None  # what it prints, as the page says
    numbers_vary: bool = False  # in the output

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(text: str, page: str) -> list[Block]:
    """All blocks of a page; outputs belong to the blocks that print them.

    Generated parts are left out: their examples are tested where the docstrings are.
    """
    text = GENERATED.sub(lambda part: "\n" * part[0].count("\n"), text)
    blocks: list[Block] = []
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start("ticks")) + 1
        indent = found["indent"]
        body = "".join(part.removeprefix(indent) for part in found["body"].splitlines(True))
        title = TITLE.search(found["info"])
        skipped = found["reason"] if found["mark"] == "not run" else None
        block = Block(page, line, found["language"], body, title and title[1], skipped)
        if block.language == "text" and skipped is None:
            if not blocks or blocks[-1].output is not None or blocks[-1].language == "toml":
                raise ValueError(f"{block.place}: this output belongs to no block that runs")
            blocks[-1].output = body
            blocks[-1].numbers_vary = found["mark"] == "numbers vary"
        else:
            blocks.append(block)
    fences = len(re.findall(r"^ *```", text, flags=re.MULTILINE))
    seen = len(blocks) + sum(block.output is not None for block in blocks)
    if fences != 2 * seen:
        raise ValueError(f"{page}: {fences} fences, but {seen} blocks")
    return blocks


def run_page(blocks: list[Block], folder: Path, seconds: float) -> None:
    """Run the blocks of a page in a folder; an AssertionError tells which one failed, and how."""
    refuse(blocks)
    here = Path(__file__)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
        "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), "."])),
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", OLD_TYPER, str(here)],
        input=json.dumps([asdict(block) for block in blocks if block.not_run is None]),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def refuse(blocks: list[Block]) -> None:
    """Raise, before anything runs, where a block would install or reach beyond its folder."""
    for block in blocks:
        found = NEVER.search(block.body) if block.language == "bash" else None
        told = f"{block.place}: {found and found[0]!r} is not run here: mark the block"
        assert found is None or block.not_run is not None, told


def main() -> None:
    """Run the blocks that come as JSON; stop at the first that is not as it says."""
    sys.path[0] = ""  # modules that the page writes
    namespace: dict[str, Any] = {"__name__": "page"}
    for values in json.load(sys.stdin):
        block = Block(**values)
        try:
            printed = carry_out(block, namespace)
            check(block, printed)
        except BaseException as error:
            told = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
            print(f"{block.place} is not as it says:\n{block.body}\n{told}")
            raise SystemExit(1) from None


def carry_out(block: Block, namespace: dict[str, Any]) -> str:
    """What a block prints."""
    if block.title is not None:
        Path(block.title).parent.mkdir(parents=True, exist_ok=True)
        Path(block.title).write_text(block.body, encoding="utf-8")
    if block.language == "toml":
        tomllib.loads(block.body)
    elif block.language == "bash":
        return commands(block.body)
    elif block.title is None:
        return in_python(block, namespace)
    else:
        compile(block.body, block.title, "exec")
    return ""


def commands(body: str) -> str:
    """What commands print; their errors and warnings are not part of it."""
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", body], capture_output=True, text=True)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def in_python(block: Block, namespace: dict[str, Any]) -> str:
    """What a python block prints; a traceback shows its lines."""
    lines = ["\n"] * block.line + block.body.splitlines(True)
    linecache.cache[block.place] = (len(block.body), None, lines, block.place)
    code = compile("\n" * block.line + block.body, block.place, "exec")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, namespace)
    return printed.getvalue()


def check(block: Block, printed: str) -> None:
    """Raise unless the output is what the page says."""
    if block.output is not None:
        words = _words if block.numbers_vary else _lines
        wanted, got = words(block.output), words(printed)
        pattern = ".*?".join(map(re.escape, wanted.split("…")))
        assert re.fullmatch(pattern, got, flags=re.DOTALL), f"it prints:\n{printed}"
    if block.language == "python" and block.title is None:
        rest = iter(printed.splitlines())
        for stated in STATED.findall(block.body):
            found = any(line.startswith(stated.strip()) for line in rest)
            assert found, f"nothing printed begins with {stated}:\n{printed}"


def _lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _words(text: str) -> str:
    """Without numbers, lines of boxes and the width of columns."""
    return " ".join(NUMBER.sub("#", re.sub(r"[─━┳╇┴┏┓┡┩└┘╭╮╰╯┻┃│]", " ", text)).split())


def pages(root: Path) -> Iterator[Path]:
    """Every page for users."""
    yield from (root / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))
    yield from sorted(root.glob("docs/**/*.md"))


if __name__ == "__main__":
    main()
