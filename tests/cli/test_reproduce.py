"""``fedro reproduce``."""

from run_cases import invoke


def test_an_unknown_figure_is_explained() -> None:
    done = invoke("reproduce", "fig9")
    assert done.exit_code == 2
    assert "fig9" in done.stderr
