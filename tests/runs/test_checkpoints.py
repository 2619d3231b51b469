"""Tensors come back from checkpoints bit for bit."""

from pathlib import Path

import pytest
import torch

from fedro.runs.checkpoints import pack_tensors, unpack_tensors
from run_folders import create

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
    file = next((path / "checkpoints").glob("*.safetensors"))
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
        ]:
            with pytest.raises(ValueError, match=why):
                folder.checkpoint(2, {name: bad}, {})
        assert folder.latest().round == 1
    assert len(list((path / "checkpoints").glob("*.safetensors"))) == 1


def test_others_can_read_the_model(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    (tmp_path / "m").write_bytes(pack_tensors({"weight": torch.ones(2)}, {}))
    assert torch.equal(load_file(tmp_path / "m")["weight"], torch.ones(2))


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
