"""The command line as a whole: help, version and imports."""

import subprocess
import sys

import pytest
import typer.main

import fedro
from fedro.cli import app
from run_cases import invoke

PLAN = ["plan", "--clients", "150", "--byzantine", "15", "--rounds", "500"]


def test_help_lists_the_commands_in_order_and_explains_every_parameter() -> None:
    group = typer.main.get_command(app)
    first = ["plan", "run", "sweep", "watch", "suspects", "report", "rollback"]
    order = [*first, "data", "rules", "attacks", "kappa", "reproduce"]
    assert list(group.commands) == order  # type: ignore[attr-defined]
    for command in group.commands.values():  # type: ignore[attr-defined]
        for parameter in command.params:
            assert parameter.help, f"{command.name}: {parameter.name}"
    shown = invoke("--help").output
    assert all(name in shown for name in order)


@pytest.mark.parametrize("arguments", [["--help"], PLAN], ids=["help", "plan"])
def test_nothing_heavy_is_imported(arguments: list[str]) -> None:
    code = (
        "import sys; from fedro.cli import app\n"
        f"try: app({arguments!r})\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'matplotlib', 'scipy', 'numba'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_python_m_fedro_prints_the_version() -> None:
    command = [sys.executable, "-m", "fedro", "--version"]
    assert subprocess.check_output(command, text=True).strip() == fedro.__version__ == "0.1.0"


def test_wrong_input_is_one_message_without_a_traceback() -> None:
    command = [sys.executable, "-m", "fedro", *PLAN, "--confidence", "1.5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("fedro: confidence=1.5")
    assert "Traceback" not in done.stderr
