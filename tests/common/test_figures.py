"""Figures are saved completely or not at all."""

from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from fedro.common import figures


@pytest.mark.parametrize("kind", ["png", "svg", "PDF"])
def test_saved_in_a_new_folder_and_closed(tmp_path: Path, kind: str) -> None:
    figure = plt.figure()
    path = figures.save(figure, tmp_path / "new" / f"plan.{kind}")
    assert [file.name for file in path.parent.iterdir()] == [f"plan.{kind}"]
    assert not plt.fignum_exists(figure.number)


def test_an_unknown_ending(tmp_path: Path) -> None:
    figure = plt.figure()
    with pytest.raises(ValueError, match=r"plan\.txt: the name must end in one of \.png, \.svg"):
        figures.save(figure, tmp_path / "plan.txt")
    plt.close(figure)


def test_failed_drawing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = plt.figure()

    def full(path: Path, **_: object) -> None:
        path.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(figure, "savefig", full)
    with pytest.raises(OSError, match=r"cannot write .*plan\.png: No space"):
        figures.save(figure, tmp_path / "plan.png")
    assert not list(tmp_path.iterdir())
    assert not plt.fignum_exists(figure.number)
