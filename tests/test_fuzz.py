"""Files and texts that nobody meant to write: a clear error or the right result, nothing lost."""

import io
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fedro import kernels
from fedro.attacks import ATTACKS, parse_attack
from fedro.common.text import to_toml
from fedro.data import make_federation
from fedro.report import write_report
from fedro.rules import RULES, parse_rule
from fedro.runs import read
from fedro.runs.checkpoints import pack, pack_tensors, unpack, unpack_tensors
from fedro.runs.errors import DamagedError
from fedro.server import screen
from fedro.simulation.experiment import Experiment, read_experiment
from fedro.simulation.preparation import prepare
from fedro.simulation.recording import run_into
from fedro.simulation.sweeps import read_sweep
from sample_data import femnist_table, write_leaf, write_parquet

pytestmark = pytest.mark.slow  # its tests train models or start processes

REFUSED = (ValueError, OSError)  # what the command line shows as one message
KEYS = sorted(Experiment.model_fields)
DEEP = os.environ.get("FEDRO_HYPOTHESIS") == "deep"  # as `make soak` runs it

odd = st.one_of(
    st.sampled_from(
        [-1, 0, 1, 3, 2**31, 2**63, 10**400, -0.5, 1e-320, 1e308, float("nan"), float("inf")]
    ),
    st.sampled_from([True, "", "x", "a:b", "os:system", "nnm", "|", "1/K", "auto", "../..", "\0"]),
    st.lists(st.sampled_from([0, -1, "x", 0.1, [], [1, 0.1]]), max_size=3),
    st.dictionaries(st.sampled_from(["x", "rounds"]), st.integers(-1, 1), max_size=2),
)
bits = st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=4)


def examples(number: int) -> settings:
    """So many; twenty times as many in a long run."""
    return settings(
        max_examples=number * (20 if DEEP else 1),
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )


def damaged(content: bytes, changes: list[tuple[int, int]], cut: int | None) -> bytes:
    """Some bytes changed, and the end cut off."""
    data = bytearray(content)
    for place, value in changes:
        data[place % len(data)] = value
    return bytes(data[: cut % len(data)] if cut is not None else data)


def refuses(action: Callable[[], Any], *also: type[Exception]) -> Any:
    """The result, or None for an error that is one message; every other error is a bug."""
    try:
        return action()
    except (*REFUSED, *also) as error:
        message = str(error)
    if not message.strip():
        pytest.fail("an error without a message")
    return None


def files(folder: Path) -> dict[str, bytes]:
    """All that a folder holds."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# --- configurations --------------------------------------------------------------------------


@given(st.dictionaries(st.sampled_from(KEYS), odd, min_size=1, max_size=3))
@examples(200)
def test_experiments_with_odd_values(values: dict[str, Any]) -> None:
    found = refuses(lambda: Experiment(**values))
    if found is not None:
        assert Experiment(**found.as_dict()) == found


@given(st.dictionaries(st.sampled_from(KEYS), odd, min_size=1, max_size=2))
@examples(100)
def test_what_can_be_prepared_of_odd_values(values: dict[str, Any]) -> None:
    small = {"dataset": "digits", "clients": 12, "model": "mlp(hidden=4)", "rounds": 2}
    refuses(lambda: prepare(Experiment(**{**small, **values})))


@given(bits, st.none() | st.integers(0, 2**20))
@examples(200)
def test_damaged_toml(tmp_path: Path, changes: list[tuple[int, int]], cut: int | None) -> None:
    file = tmp_path / "x.toml"
    whole = to_toml(read_experiment("demo").as_dict()).encode()
    file.write_bytes(damaged(whole, changes, cut))
    before = file.read_bytes()
    refuses(lambda: read_experiment(file))
    refuses(lambda: read_sweep(file))
    assert file.read_bytes() == before


@given(st.dictionaries(st.sampled_from([*KEYS, "zip", "base", "name"]), odd, max_size=3))
@examples(100)
def test_odd_sweeps(tmp_path: Path, values: dict[str, Any]) -> None:
    file = tmp_path / "x.toml"
    text = refuses(lambda: to_toml(values), TypeError)
    if text is not None:
        file.write_text(text)
        refuses(lambda: read_sweep(file))


NAMES = [*RULES, *ATTACKS, "b", "limit", "tau", "z", "own", "True", "None", "1", "-1.5", "1e400"]
pieces = st.lists(
    st.sampled_from([*NAMES, *"|()=,.[]{}'\"# \n;:\\", "\0", "🤖", "__import__('os')"]), max_size=9
)


@given(pieces.map("".join))
@examples(1000)
def test_texts_of_rules_and_attacks(text: str) -> None:
    rule = refuses(lambda: parse_rule(text))
    if rule is not None:
        assert parse_rule(str(rule)) == rule
        refuses(lambda: rule(np.eye(9, 5), b=1))
    refuses(lambda: parse_attack(text))


@given(st.text(max_size=30))
@examples(500)
def test_texts_of_anything(text: str) -> None:
    for parse in (parse_rule, parse_attack):
        refuses(lambda parse=parse: parse(text))
    for key in ("rule", "attack", "dataset", "model", "partition", "client_lr"):
        refuses(lambda key=key: Experiment(**{key: text}))


# --- run folders -----------------------------------------------------------------------------

SMALL = Experiment(
    dataset="digits",
    clients=8,
    model="mlp(hidden=4)",
    byzantine=1,
    attack="nan",
    rounds=4,
    local_steps=1,
    batch_size=4,
    evaluate_every=2,
    checkpoint_every=2,
    sampled=8,
    tolerated=1,
)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a power cut can tell whether the disk was waited for."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "finished"
    for _ in run_into(path, SMALL):
        pass
    return path


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "stopped"
    for done in run_into(path, SMALL):
        if done.round == 2:
            break
    return path


@pytest.mark.slow
@given(st.data())
@examples(12)
def test_a_damaged_run_is_told_and_left_alone(
    tmp_path: Path, finished: Path, data: st.DataObject
) -> None:
    copy = tmp_path / "run"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(finished, copy)
    names = ["run.json", "rounds.jsonl", "summary.json"]
    victim = copy / data.draw(st.sampled_from(names))
    cut = data.draw(st.none() | st.integers(0, 2**20))
    victim.write_bytes(damaged(victim.read_bytes(), data.draw(bits), cut))
    before = files(copy)
    refuses(lambda: read(copy))
    refuses(lambda: write_report([copy], tmp_path / "report.html"))
    refuses(lambda: list(run_into(copy, SMALL, resume=True)))
    refuses(lambda: list(run_into(copy, SMALL)))
    assert files(copy) == before


lines = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["round", "score", "sampled", "byzantine", "seconds", "rejected", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(st.lists(lines, min_size=1, max_size=3))
@examples(60)
def test_lines_of_another_version(tmp_path: Path, finished: Path, new: list[Any]) -> None:
    """JSON that is well formed and says something else."""
    copy = tmp_path / "run"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(finished, copy)
    with (copy / "rounds.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in new)
    before = files(copy)
    refuses(lambda: read(copy))
    refuses(lambda: write_report([copy], tmp_path / "report.html"))
    assert files(copy) == before


# --- checkpoints -----------------------------------------------------------------------------


def newest(folder: Path) -> Path:
    return max(folder.rglob("round-*.safetensors"))


@pytest.mark.slow
@given(bits, st.none() | st.integers(0, 2**20))
@examples(12)
def test_a_damaged_checkpoint_changes_no_bit_of_the_result(
    tmp_path: Path, stopped: Path, finished: Path, changes: list[tuple[int, int]], cut: int | None
) -> None:
    copy = tmp_path / "run"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(stopped, copy)
    newest(copy).write_bytes(damaged(newest(copy).read_bytes(), changes, cut))
    refuses(lambda: list(run_into(copy, SMALL, resume=True)))
    if read(copy).finished:
        assert (copy / "model.safetensors").read_bytes() == (
            finished / "model.safetensors"
        ).read_bytes()


headers = st.one_of(
    st.binary(max_size=60),
    st.builds(
        lambda dtype, shape, ends: json.dumps(
            {"model": {"dtype": dtype, "shape": shape, "data_offsets": ends}}
        ).encode(),
        st.sampled_from(["F32", "F64", "I64", "X9", "", "BOOL"]),
        st.lists(st.sampled_from([0, 1, 4, -1, 2**40, 2**63]), max_size=3),
        st.lists(st.sampled_from([0, 4, 16, -1, 2**40, 2**64 - 1]), max_size=3),
    ),
    st.just(b"[" * 100_000),
)


@given(headers, st.sampled_from([None, 0, 7, 2**20, 2**40, 2**63]), st.binary(max_size=20))
@examples(200)
def test_hostile_safetensors(tmp_path: Path, header: bytes, size: int | None, rest: bytes) -> None:
    file = tmp_path / "round-000002.safetensors"
    length = len(header) if size is None else size
    file.write_bytes(struct.pack("<Q", length) + header + rest)
    with pytest.raises(DamagedError):
        unpack_tensors(file)


@pytest.mark.parametrize(
    ("tensors", "facts"),
    [
        ({}, {}),
        ({"model": torch.zeros(3)}, {"round": 2, "scalars": {}}),
        ({}, {"round": 2, "lines": {"size": 0, "digest": ""}}),
        ({}, {"round": 2, "scalars": {}, "lines": {"size": "0", "digest": ""}}),
        ({}, {"round": "2", "scalars": {}, "lines": {"size": 0, "digest": ""}}),
        ({}, [2]),
    ],
)
def test_whole_checkpoints_that_lack_something(tmp_path: Path, tensors: Any, facts: Any) -> None:
    """Every byte as it was written, by a program that is not this one."""
    file = tmp_path / "round-000002.safetensors"
    file.write_bytes(pack_tensors(tensors, facts))
    with pytest.raises(DamagedError, match=r"\w"):
        unpack(file)


@pytest.mark.parametrize(
    "tensors",
    [
        {"weights": torch.zeros(3)},
        {"model": torch.zeros(3)},
        {"model": torch.zeros(3, 3)},
    ],
)
def test_a_checkpoint_of_another_model_is_refused(
    tmp_path: Path, stopped: Path, tensors: Any
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(stopped, copy)
    old, mark = unpack(newest(copy))
    for file in copy.rglob("round-*.safetensors"):
        if file != newest(copy):
            file.unlink()
    newest(copy).write_bytes(pack(old.round, tensors, {}, mark))
    before = files(copy)
    with pytest.raises(ValueError, match="model"):
        list(run_into(copy, SMALL, resume=True))
    assert files(copy) == before


# --- data ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("sources")
    write_leaf(root / "leaf", {"a": 2, "b": 2}, {"a": 1, "b": 1})
    write_parquet(femnist_table({"a": 6, "b": 6}), root / "parquet" / "femnist.parquet")
    (root / "folder").mkdir()
    for client in range(2):
        x = np.arange(40.0).reshape(10, 4)
        np.savez(root / "folder" / f"client_{client}.npz", x=x, y=np.arange(10) % 2)
    return {path.name: path for path in root.iterdir()}


@pytest.mark.parametrize("kind", ["leaf", "parquet", "folder"])
@given(st.data())
@examples(60)
def test_damaged_data(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sources: dict[str, Path],
    kind: str,
    data: st.DataObject,
) -> None:
    monkeypatch.setenv("FEDRO_CACHE", str(tmp_path / "cache"))
    copy = tmp_path / kind
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(sources[kind], copy)
    candidates = sorted(path for path in copy.rglob("*") if path.is_file())
    victim = data.draw(st.sampled_from(candidates))
    cut = data.draw(st.none() | st.integers(0, 2**20))
    victim.write_bytes(damaged(victim.read_bytes(), data.draw(bits), cut))
    before = files(copy)
    name = "folder" if kind == "folder" else "femnist"

    def everything() -> None:
        federation = make_federation(f"{name}(path={str(copy)!r})", clients=2, seed=1)
        for client in range(federation.clients):
            examples = federation.train(client)
            assert len(examples.x) == len(examples.y)

    refuses(everything)
    assert files(copy) == before


words = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 70) | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["users", "user_data", "x", "y", "a"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(words)
@example({"users": [False], "user_data": []})
@examples(100)
def test_leaf_files_that_say_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: Any
) -> None:
    monkeypatch.setenv("FEDRO_CACHE", str(tmp_path / "cache"))
    for part in ("train", "test"):
        (tmp_path / "leaf" / part).mkdir(parents=True, exist_ok=True)
        (tmp_path / "leaf" / part / "all_data.json").write_text(json.dumps(content))
    refuses(lambda: make_federation(f"femnist(path={str(tmp_path / 'leaf')!r})", clients=1, seed=1))


def test_a_leaf_file_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDRO_CACHE", str(tmp_path / "cache"))
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "all_data.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="damaged or cut off"):
        make_federation(f"femnist(path={str(tmp_path)!r})", clients=1, seed=1)


@given(
    st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), min_size=1, max_size=6),
    st.booleans(),
)
@examples(100)
def test_the_screen_finds_what_is_not_finite(values: list[list[float]], compiled: bool) -> None:
    updates, rows = torch.tensor(values, dtype=torch.float32), np.arange(len(values))[::-1]
    before = updates.clone()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "MIN_COMPILED_SIZE", 0 if compiled else 1 << 17)
        found = screen(updates, rows)
    wrong = {row for row, numbers in enumerate(values) if not np.isfinite(numbers).all()}
    assert found == dict.fromkeys(wrong, "holds NaN or Inf")
    assert torch.equal(updates.nan_to_num(), before.nan_to_num())


@given(
    st.sampled_from(["<f4", ">f4", "<f8", "<f2", "<i4", "<c8", "|O", "|S4"]),
    st.sampled_from(["numpy.ndarray", "", "pickle"]),
    bits | st.just([]),
    st.none() | st.integers(0, 160),
)
@example("<f4", "numpy.ndarray", [], None)
@examples(200)
def test_damaged_arrays_of_a_reply(
    dtype: str, kind: str, changes: list[tuple[int, int]], cut: int | None
) -> None:
    flower = pytest.importorskip("flwr.app")
    from fedro.flower.layout import UnusableReply, read_floats

    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": dtype, "fortran_order": False, "shape": (2, 3)}
    )
    whole = file.getvalue() + np.arange(6, dtype=dtype if dtype[1] in "fic" else "<f4").tobytes()
    data = damaged(whole, changes, cut)
    array = flower.Array(dtype="float32", shape=(2, 3), stype=kind, data=data)
    try:
        found = read_floats("a", array, (2, 3))
    except UnusableReply:
        if not changes and cut is None and kind == "numpy.ndarray" and dtype[1] == "f":
            raise
        return
    assert (found.shape, found.dtype.kind, kind) == ((2, 3), "f", "numpy.ndarray")
    assert found.tobytes() == np.load(io.BytesIO(data), allow_pickle=False).tobytes()
