"""``fedro data``."""

from pathlib import Path

from run_cases import invoke


def test_what_the_clients_have_is_shown_and_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "data.png"
    done = invoke("data", "digits", "--clients", "7", "--partition", "iid", "--plot", picture)
    assert done.exit_code == 0
    assert "7 clients" in done.stdout
    assert f"Figure written to {picture}" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_an_unknown_data_set_is_explained() -> None:
    done = invoke("data", "digts")
    assert done.exit_code == 2
    assert "did you mean 'digits'" in done.stderr
