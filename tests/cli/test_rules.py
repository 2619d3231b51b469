"""``fedro rules`` and ``fedro attacks``."""

from run_cases import invoke


def test_rules_are_listed() -> None:
    assert "nnm |" in invoke("rules").stdout
    assert invoke("rules", "--markdown").stdout.startswith("| name | what it does |")


def test_attacks_are_listed() -> None:
    assert "alie" in invoke("attacks").stdout
    assert invoke("attacks", "--markdown").stdout.startswith("| ")
