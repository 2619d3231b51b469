"""``fedro kappa``."""

import json

import pytest

from run_cases import invoke

ARGUMENTS = ["--sampled", "5", "--tolerated", "2", "--seconds", "0.5"]


@pytest.mark.slow
def test_proved_lower_bound_and_found_are_shown() -> None:
    text = invoke("kappa", "trimmed_mean", *ARGUMENTS).stdout
    assert "proved κ       2 " in text
    assert "lower bound    2 " in text
    result = json.loads(invoke("kappa", "trimmed_mean", *ARGUMENTS, "--json").stdout)
    assert result["proved"] == result["lower_bound"] == 2
    assert 1.9 < result["largest_found"] <= 2.001
    assert invoke("kappa", "mean", *ARGUMENTS).stdout.count("none known") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no_such", "--sampled", "5", "--tolerated", "1"], "unknown rule"),
        (["median", "--sampled", "4", "--tolerated", "2"], "needs 2b < n"),
        (["mean", "--sampled", "4", "--tolerated", "2"], "needs 2b < n"),
        (["nnm", "--sampled", "5", "--tolerated", "1"], "ends in a mixer"),
        (["median", "--sampled", "5", "--tolerated", "1", "--seconds", "-1"], "seconds"),
    ],
)
def test_wrong_input_is_explained(arguments: list[str], message: str) -> None:
    done = invoke("kappa", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
