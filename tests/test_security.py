"""What SECURITY.md promises about the source."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedro
from fedro.attacks import parse_attack
from fedro.rules import parse_rule

SOURCE = Path(fedro.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
READS_PICKLES = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
IMPORTS = {  # who imports by name: the user's modules in one place, known names in the others
    "__init__.py",
    "flower/__init__.py",
    "common/stages.py",
    "data/digits.py",
    "data/parquet.py",
}


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_nothing_that_could_run_data(file: Path) -> None:
    tree = ast.parse(file.read_text())
    imported = {
        name.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in (
            [ast.alias(node.module or "")] if isinstance(node, ast.ImportFrom) else node.names
        )
    }
    assert not imported & READS_PICKLES
    for name, call in calls(tree):
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        assert name not in ("eval", "exec", "torch.load", "os.system", "__import__")
        assert keywords.get("allow_pickle", "False") == "False"
        assert keywords.get("shell", "False") == "False"
        if name == "importlib.import_module":
            assert str(file.relative_to(SOURCE)) in IMPORTS


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "median(b=__import__('os'))",
        "(lambda: 1)()",
        "a.b",
        "a[0]",
    ],
)
def test_texts_are_names_and_literals(text: str) -> None:
    for parse in (parse_rule, parse_attack):
        with pytest.raises(ValueError, match=r"cannot read|unknown"):
            parse(text)


@pytest.mark.slow
def test_a_report_imports_nothing_that_a_configuration_names(tmp_path: Path) -> None:
    (tmp_path / "trap.py").write_text(
        "from fedro.rules import register\nopen('sprung', 'a').close()\n"
        "@register()\ndef rule(rows):\n    'Trims.'\n"
        "    return rows.band(rows.b, rows.n - rows.b)\n"
    )

    def run(*arguments: str) -> None:
        command = [sys.executable, "-m", "fedro", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr

    run("run", "demo", "--set", "rounds=2", "--set", "rule=trap:rule", "--out", "runs/one")
    (tmp_path / "sprung").unlink()
    run("report", "runs", "--out", "report.html")
    assert not (tmp_path / "sprung").exists()
