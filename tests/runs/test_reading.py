"""What is read from a run folder, and which configurations a resumed run refuses."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from fedro.runs import RunFolder, RunFolderError, read
from run_folders import CONFIG, create, resume


@pytest.mark.parametrize("exists", [False, True])
def test_resume_needs_a_run(path: Path, exists: bool) -> None:
    if exists:
        path.mkdir(parents=True)
    for action in (resume, read):
        with pytest.raises(RunFolderError, match=r"runs/a holds no run: it has no run\.json"):
            action(path)
    assert path.exists() == exists
    assert not exists or not list(path.iterdir())


def test_another_fingerprint_is_refused(path: Path) -> None:
    create(path).close()
    other = {"torch": "2.14.0", "device": "cpu", "threads": 2.0, "cpu": "x"}
    with pytest.raises(RunFolderError) as refused:
        resume(path, fingerprint=other)
    assert "torch: '2.13.0' in the run, '2.14.0' here" in str(refused.value)
    assert "cpu: not set in the run, 'x' here" in str(refused.value)
    assert "device" not in str(refused.value)
    assert "threads" not in str(refused.value)
    resume(path).close()


def test_another_config_is_refused(path: Path) -> None:
    create(path).close()
    other = {"rounds": 5, "lr": [[0, 0.1]], "tau": math.inf, "target": 3}
    with pytest.raises(RunFolderError) as refused:
        resume(path, config=other)
    assert "rounds: 4 in the run, 5 given now" in str(refused.value)
    assert "rule: 'nnm | krum' in the run, not set given now" in str(refused.value)
    assert "target: not set in the run, 3 given now" in str(refused.value)
    assert "lr" not in str(refused.value)
    assert "tau" not in str(refused.value)
    resume(path, config=other, may_differ=("rounds", "rule", "target")).close()
    resume(path, config={**CONFIG, "rounds": 4.0}).close()


def test_nan_is_the_same_as_nan(path: Path) -> None:
    RunFolder.create(path, {"x": math.nan}, {}).close()
    RunFolder.resume(path, {"x": math.nan}, {}).close()


def test_an_edited_config_file_is_refused(path: Path) -> None:
    create(path).close()
    file = path / "config.toml"
    text = file.read_text()
    file.write_text("# my best run\n" + text)
    resume(path).close()
    file.write_text(text.replace("rounds = 4", "rounds = 5"))
    with pytest.raises(RunFolderError, match="rounds: 4 in the run, 5 in the file\nDelete it"):
        resume(path)
    resume(path, may_differ=["rounds"]).close()
    file.write_bytes(b"\xff")
    with pytest.raises(RunFolderError, match=r"config\.toml is damaged: .* Delete it"):
        resume(path)
    file.unlink()
    resume(path).close()
    assert file.read_text() == text


def test_damaged_json_is_named(path: Path) -> None:
    with create(path) as folder:
        folder.finish({}, {"a": 1})
    (path / "rounds.jsonl").write_bytes(b'{"round": 0}\n{"rou\n{"round": 2}\n')
    with pytest.raises(RunFolderError, match=r"line 2 of .*rounds\.jsonl is damaged"):
        read(path)
    (path / "rounds.jsonl").unlink()
    with pytest.raises(RunFolderError, match=r"rounds\.jsonl is missing"):
        read(path)
    (path / "summary.json").write_bytes(b"[]")
    with pytest.raises(RunFolderError, match=r"summary\.json is damaged: no JSON object"):
        read(path)
    run = json.loads((path / "run.json").read_bytes())
    (path / "run.json").write_text(json.dumps({**run, "format": 9}))
    with pytest.raises(RunFolderError, match=r"has the format 9, this version of fedro reads 1"):
        resume(path)
    (path / "run.json").write_bytes(b"[" * 100_000)
    with pytest.raises(RunFolderError, match=r"run\.json is damaged"):
        read(path)


def test_run_json_says_nothing_of_the_host(path: Path) -> None:
    create(path).close()
    run = json.loads((path / "run.json").read_bytes())
    assert set(run) == {"format", "created", "versions", "fingerprint", "config"}
    assert set(run["versions"]) == {"fedro", "python", "numpy", "safetensors", "torch"}
    assert run["created"].endswith("+00:00")


def test_reading_needs_no_torch(path: Path) -> None:
    create(path).close()
    code = "import sys, fedro.runs; fedro.runs.read(sys.argv[1]); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, path], timeout=60).returncode == 0
