"""The run folder when all goes well, and what it refuses. Faults: test_record_faults.py."""

import json
import math
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedro.runs import Recorded, RunFolder, RunFolderError, read
from fedro.runs.checkpoints import pack_tensors, unpack_tensors
from fedro.runs.strict import parse, plain, to_json

CONFIG = {"rounds": 4, "rule": "nnm | krum", "target": None, "lr": [(0, 0.1)], "tau": math.inf}
FINGERPRINT = {"torch": "2.13.0", "device": "cpu", "threads": 2}


def create(path: Path) -> RunFolder:
    return RunFolder.create(path, config=CONFIG, fingerprint=FINGERPRINT)


def resume(path: Path, **changes: Any) -> RunFolder:
    given = {"config": CONFIG, "fingerprint": FINGERPRINT, **changes}
    return RunFolder.resume(path, **given)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a power cut can tell whether the disk was waited for."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "a"


def test_a_run_from_begin_to_end(path: Path) -> None:
    with create(path) as folder:
        assert folder.latest() is None
        for round in range(4):
            folder.append({"round": round, "loss": 1 / (round + 1)})
            folder.checkpoint(round + 1, {"model": torch.full((3,), float(round))}, {"best": 0.5})
        assert not folder.finished
        assert read(path) == Recorded(
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
    assert names == ["round-000003.safetensors", "round-000004.safetensors"]
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


# What is refused


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


def test_a_closed_folder_is_not_written(path: Path) -> None:
    with create(path) as folder:
        pass
    with pytest.raises(RunFolderError, match=r"was closed: RunFolder\.resume opens it again"):
        folder.append({})
    with pytest.raises(RunFolderError, match="was closed"):
        folder.latest()
    folder.close()


def test_run_json_says_nothing_of_the_host(path: Path) -> None:
    create(path).close()
    run = json.loads((path / "run.json").read_bytes())
    assert set(run) == {"format", "created", "versions", "fingerprint", "config"}
    assert set(run["versions"]) == {"fedro", "python", "numpy", "safetensors", "torch"}
    assert run["created"].endswith("+00:00")


def test_files_have_the_usual_permissions(path: Path) -> None:
    with create(path) as folder:
        folder.checkpoint(1, {}, {})
        folder.finish({}, {})
    mask = os.umask(0)
    os.umask(mask)
    for file in (f for f in path.rglob("*") if f.is_file()):
        assert file.stat().st_mode & 0o777 == 0o666 & ~mask, file.name


# JSON


TREES = st.recursive(
    st.sampled_from([None, False, True]) | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=4,
)


def without(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [without(item) for item in value]
    return {k: without(v) for k, v in value.items()} if isinstance(value, dict) else value


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


@given(st.dictionaries(st.text(max_size=4), TREES, max_size=3))
def test_json_round_trip(line: dict[str, Any]) -> None:
    text = to_json(line)
    assert b"\n" not in text
    assert text.isascii()
    assert repr(json.loads(text, parse_constant=refuse)) == repr(without(line))
    assert repr(parse(text, "line")) == repr(without(line))
    assert repr(json.loads(json.dumps(plain(line, finite=False)))) == repr(line)


def test_json_takes_only_what_comes_back(path: Path) -> None:
    assert to_json({"a": (1, 2), "b": np.float64(0.5)}) == b'{"a": [1, 2], "b": 0.5}'
    with pytest.raises(TypeError, match=r"\['a'\]\[1\] is a Tensor: JSON has None, bool"):
        to_json({"a": [1, torch.ones(1)]})
    with pytest.raises(TypeError, match=r"\['a'\]\[1\]: a key of JSON is a string"):
        to_json({"a": {1: 2}})
    with create(path) as folder:
        with pytest.raises(TypeError, match=r"\['loss'\] is a float32"):
            folder.append({"loss": np.float32(1)})
        with pytest.raises(TypeError, match=r"\['x'\] is a set"):
            folder.checkpoint(1, {}, {"x": set()})
        with pytest.raises(TypeError, match=r"\['x'\] is a set"):
            folder.finish({}, {"x": set()})
        assert folder.latest() is None
        assert folder.rounds() == []
    assert not (path / "model.safetensors").exists()


# Tensors


DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32),
    *(torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2),
]


def sameness(a: torch.Tensor, b: torch.Tensor) -> bool:
    bits = (x.reshape(-1).view(torch.uint8) for x in (a, b))
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*bits)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_come_back_bit_for_bit(path: Path, dtype: torch.dtype) -> None:
    size = torch.empty(0, dtype=dtype).element_size()
    high = 2 if dtype == torch.bool else 256  # other bits: NaNs with payloads, subnormal numbers
    raw = torch.randint(high, (24 * size,), dtype=torch.uint8, generator=torch.Generator())
    whole = raw.view(dtype)
    tensors = {
        "vector": whole,
        "0-d": whole[3].clone(),
        "empty": whole[:0],
        "empty matrix": whole[:0].reshape(0, 3),
        "matrix, κ\n": whole.reshape(2, 3, 4).clone(),
    }
    with create(path) as folder:
        folder.checkpoint(1, tensors, {})
        latest = folder.latest()
    assert latest is not None
    assert set(latest.tensors) == set(tensors)
    for name, tensor in tensors.items():
        assert sameness(latest.tensors[name], tensor), name


def test_views_and_shared_memory(path: Path) -> None:
    flat = torch.arange(12.0)
    parameter = torch.nn.Parameter(torch.randn(3))
    tensors = {
        "columns": flat.reshape(3, 4).t(),
        "part": flat[2:7],
        "same": flat[2:7],
        "overlap": flat[5:9],
        "nothing": flat[4:4],
        "expanded": torch.ones(1).expand(3),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "negative": torch.tensor([1 + 2j]).conj().imag,
        "parameter": parameter,
        "channels last": torch.randn(1, 2, 3, 3).to(memory_format=torch.channels_last),
    }
    wanted = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    with create(path) as folder:
        folder.checkpoint(1, tensors, {})
        folder.checkpoint(2, {"flat": flat, "empty": torch.empty(0)}, {})
        folder.checkpoint(2, tensors, {})
        latest = folder.latest()
        folder.finish(tensors, {})
    model, _ = unpack_tensors(path / "model.safetensors")
    for name, tensor in wanted.items():
        assert torch.equal(latest.tensors[name], tensor), name
        assert torch.equal(model[name], tensor), name
        assert torch.equal(tensors[name], tensor), name


def test_loaded_tensors_do_not_hang_on_the_file(path: Path) -> None:
    with create(path) as folder:
        folder.checkpoint(1, {"x": torch.ones(1000)}, {})
        latest = folder.latest()
    file = next((path / "checkpoints").iterdir())
    file.write_bytes(b"\0" * file.stat().st_size)
    assert torch.equal(latest.tensors["x"], torch.ones(1000))
    latest.tensors["x"].add_(1)


def test_tensors_that_cannot_be_held(path: Path) -> None:
    with create(path) as folder:
        folder.checkpoint(1, {"x": torch.ones(1)}, {})
        for name, bad, why in [
            ("x", torch.ones(2, dtype=torch.complex128), "cannot hold one of these.*complex128"),
            ("x", torch.ones(2).to_sparse(), "'x' must be dense and hold values"),
            ("x", torch.ones(2, device="meta"), "'x' must be dense and hold values"),
            ("rounds.jsonl", torch.ones(2), "'rounds.jsonl': the name is taken"),
        ]:
            with pytest.raises(ValueError, match=why):
                folder.checkpoint(2, {name: bad}, {})
        assert folder.latest().round == 1
    assert len(list((path / "checkpoints").iterdir())) == 1


def test_others_can_read_the_model(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    (tmp_path / "m").write_bytes(pack_tensors({"weight": torch.ones(2)}, {}))
    assert torch.equal(load_file(tmp_path / "m")["weight"], torch.ones(2))


# The lock in one process; with others: test_record_faults.py


def test_a_second_one_in_this_process_is_refused(path: Path) -> None:
    with create(path):
        message = f"{path} is in use by process {os.getpid()}: wait until it ends, stop it, or"
        for action in (create, resume):
            with pytest.raises(RunFolderError) as refused:
                action(path)
            assert message in str(refused.value)
        assert read(path).rounds == []
    resume(path).close()


def test_a_forgotten_folder_lets_go(path: Path) -> None:
    folder = create(path)
    del folder
    resume(path).close()


def test_other_programs_do_not_inherit_the_lock(path: Path) -> None:
    with create(path):
        sleeper = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        resume(path).close()
    finally:
        sleeper.kill()
        sleeper.wait(timeout=10)


def test_reading_needs_no_torch(path: Path) -> None:
    create(path).close()
    code = "import sys, fedro.runs; fedro.runs.read(sys.argv[1]); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, path], timeout=60).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_one_extra_copy_of_a_big_tensor(path: Path) -> None:
    from memory import peak_extra

    big = {"x": torch.ones(25_000_000), "y": torch.ones(5_000_000)}
    size = 4 * 30_000_000
    with create(path) as folder:
        folder.checkpoint(1, {"x": torch.ones(5)}, {})
        folder.latest()
        assert peak_extra(lambda: folder.checkpoint(2, big, {})) < 1.1 * size
        assert peak_extra(folder.latest) < 1.1 * size
        assert peak_extra(lambda: folder.finish(big, {})) < 1.1 * size


@pytest.fixture(autouse=True)
def _nothing_left_open() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    yield
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before
