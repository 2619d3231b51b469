"""The run folder when all goes well, and what it refuses. Faults: test_faults.py."""

import math
import os
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from fedro.runs import RecordedRun, RunFolderError, read
from fedro.runs.checkpoints import unpack_tensors
from run_folders import FINGERPRINT, create, resume


def test_a_run_from_begin_to_end(path: Path) -> None:
    with create(path) as folder:
        assert folder.latest() is None
        for round in range(4):
            folder.append({"round": round, "loss": 1 / (round + 1)})
            folder.checkpoint(round + 1, {"model": torch.full((3,), float(round))}, {"best": 0.5})
        assert not folder.finished
        assert read(path) == RecordedRun(
            tomllib.loads((path / "config.toml").read_text()),
            FINGERPRINT,
            [{"round": r, "loss": 1 / (r + 1)} for r in range(4)],
            None,
            False,
        )
        folder.finish({"weight": torch.ones(2, 2)}, {"accuracy": 0.9, "error": math.nan})
        assert folder.finished
    assert read(path).summary == {"accuracy": 0.9, "error": None}
    assert read(path).finished
    assert read(path).config == {
        "rounds": 4,
        "rule": "nnm | krum",
        "lr": [[0, 0.1]],
        "tau": math.inf,
    }
    assert {file.name for file in path.iterdir()} == {
        *("config.toml", "run.json", "rounds.jsonl", "checkpoints"),
        *("model.safetensors", "summary.json", "lock"),
    }
    names = sorted(file.name for file in (path / "checkpoints").iterdir())
    assert names == ["round-000003.safetensors", "round-000004.safetensors", "rounds.jsonl"]
    assert torch.equal(unpack_tensors(path / "model.safetensors")[0]["weight"], torch.ones(2, 2))


def test_resume_goes_back_to_the_checkpoint(path: Path) -> None:
    with create(path) as folder:
        for round in range(3):
            folder.append({"round": round})
        folder.checkpoint(3, {"x": torch.arange(4)}, {"lr": 0.1, "best": math.inf})
        folder.append({"round": 3})
    with resume(path) as folder:
        latest = folder.latest()
        assert latest is not None
        assert latest.round == 3
        assert torch.equal(latest.tensors["x"], torch.arange(4))
        assert latest.scalars == {"lr": 0.1, "best": math.inf}
        assert folder.rounds() == [{"round": 0}, {"round": 1}, {"round": 2}]
        folder.append({"round": 3})
        assert folder.latest().round == 3
        assert len(folder.rounds()) == 3


def test_without_a_checkpoint_it_starts_again(path: Path) -> None:
    with create(path) as folder:
        folder.append({"round": 0})
    with resume(path) as folder:
        assert folder.latest() is None
        assert folder.rounds() == []


def test_a_checkpoint_leaves_out_lines_of_later_rounds(path: Path) -> None:
    """Stopped between a line and its state: the state before is saved, the line comes again."""
    with create(path) as folder:
        folder.append({"round": 0})
        folder.append({"note": "no round"})
        folder.append({"round": 1})
        folder.append({"round": 2})
        folder.checkpoint(1, {}, {})
    with resume(path) as folder:
        assert folder.rounds() == [{"round": 0}, {"note": "no round"}]
        folder.append({"round": 1})
        folder.checkpoint(0 + 1, {}, {})
        folder.checkpoint(2, {}, {})
    with resume(path) as folder:
        assert folder.rounds()[2:] == [{"round": 1}]


def test_a_complete_run_stays_as_it_is(path: Path) -> None:
    with create(path) as folder:
        folder.append({"round": 0})
        folder.checkpoint(1, {"x": torch.ones(1)}, {})
        folder.append({"round": 1})
        folder.finish({}, {})
    with resume(path) as folder:
        assert folder.finished
        assert folder.latest().round == 1
        assert folder.rounds() == [{"round": 0}, {"round": 1}]
        for write in (
            lambda: folder.append({}),
            lambda: folder.checkpoint(3, {}, {}),
            lambda: folder.finish({}, {}),
        ):
            with pytest.raises(RunFolderError, match=r"the run in .* is complete"):
                write()
    for file in (path / "checkpoints").iterdir():
        file.unlink()
    with resume(path) as folder:
        assert folder.latest() is None
        assert len(folder.rounds()) == 2


def test_checkpoints_do_not_go_back(path: Path) -> None:
    with create(path) as folder:
        folder.checkpoint(np.int64(5), {}, {})
        with pytest.raises(ValueError, match="round=4: must be at least 5"):
            folder.checkpoint(4, {}, {})
        with pytest.raises(ValueError, match="round=-1"):
            folder.checkpoint(-1, {}, {})
        for round in (999_999, 1_000_000, 1_000_001):
            folder.checkpoint(round, {}, {})
        assert folder.latest().round == 1_000_001


def test_create_refuses_a_folder_with_a_run(path: Path) -> None:
    create(path).close()
    before = (path / "run.json").read_bytes()
    with pytest.raises(RunFolderError, match=r"runs/a holds a run: --resume goes on with it"):
        create(path)
    assert (path / "run.json").read_bytes() == before
    resume(path).close()  # the refusal let go of the lock


def test_create_does_not_overwrite_other_files(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "notes.txt").write_text("mine")
    (path / "config.toml").write_text("mine = true")
    with pytest.raises(RunFolderError, match=r"files that a run would overwrite \(config.toml\)"):
        create(path)
    assert (path / "config.toml").read_text() == "mine = true"
    (path / "config.toml").unlink()
    create(path).close()
    assert (path / "notes.txt").read_text() == "mine"


def test_create_refuses_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(RunFolderError, match=r"File exists\. Nothing was begun; choose another"):
        create(tmp_path / "a")
    with pytest.raises(RunFolderError, match=r"Not a directory|File exists"):
        create(tmp_path / "a" / "b")


def test_a_closed_folder_is_not_written(path: Path) -> None:
    with create(path) as folder:
        pass
    with pytest.raises(RunFolderError, match=r"was closed: RunFolder\.resume opens it again"):
        folder.append({})
    with pytest.raises(RunFolderError, match="was closed"):
        folder.latest()
    folder.close()


def test_files_have_the_usual_permissions(path: Path) -> None:
    with create(path) as folder:
        folder.checkpoint(1, {}, {})
        folder.finish({}, {})
    mask = os.umask(0)
    os.umask(mask)
    for file in (f for f in path.rglob("*") if f.is_file()):
        assert file.stat().st_mode & 0o777 == 0o666 & ~mask, file.name
