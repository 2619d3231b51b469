"""A state of the run in one safetensors file: every bit as it was written, or known not to be."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedro.runs.files import RunFolderError
from fedro.runs.strict import plain

if TYPE_CHECKING:
    from torch import Tensor

LINES = "rounds.jsonl"  # the tensor in which a checkpoint holds the lines until then
ENTRY = "fedro"  # of the metadata: the checksum and the facts
NAME = re.compile(r"round-\d{6,}\.safetensors")


class Checkpoint(NamedTuple):
    """The state after so many rounds."""

    round: int
    tensors: dict[str, "Tensor"]
    scalars: dict[str, Any]


class DamagedError(RunFolderError):
    """A file that is not as it was written."""


def name_of(round: int) -> str:
    """The name of a checkpoint's file."""
    return f"round-{round:06d}.safetensors"


def round_of(path: Path) -> int:
    """The round in a checkpoint's name."""
    return int(path.stem.removeprefix("round-"))


def listed(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first."""
    found = [path for path in folder.iterdir() if NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: (len(path.name), path.name), reverse=True)


def keep_newest(folder: Path, number: int) -> None:
    """Delete older checkpoints."""
    for path in listed(folder)[number:]:
        path.unlink(missing_ok=True)


def newest(folder: Path) -> tuple[Checkpoint | None, bytes, list[Path]]:
    """The newest whole checkpoint, its lines, and the damaged ones after it."""
    damaged: dict[Path, str] = {}
    for path in listed(folder):
        try:
            return *unpack(path), list(damaged)
        except DamagedError as error:
            damaged[path] = str(error)
    if damaged:
        names = "".join(f"\n  {path}: {reason}" for path, reason in damaged.items())
        raise RunFolderError(
            f"every checkpoint is damaged:{names}\nPut one back from a copy; or delete them, and "
            "--resume starts the run again from round 0."
        )
    return None, b"", []


def pack(
    round: int, tensors: Mapping[str, "Tensor"], scalars: Mapping[str, Any], lines: bytes
) -> bytes:
    """The bytes of a checkpoint; scalars may be NaN or infinite, and come back so."""
    import torch

    if LINES in tensors:
        raise ValueError(f"tensor {LINES!r}: the name is taken for the record's own; use another")
    text = torch.frombuffer(bytearray(lines or b"\n"), dtype=torch.uint8)[: len(lines)]
    facts = {"round": round, "scalars": plain(scalars, finite=False)}
    return pack_tensors({**tensors, LINES: text}, facts)


def unpack(path: Path) -> tuple[Checkpoint, bytes]:
    """The checkpoint in a file, and the lines until then."""
    tensors, facts = unpack_tensors(path)
    match facts:
        case {"round": int(round), "scalars": dict(scalars)} if LINES in tensors:
            lines = tensors.pop(LINES).numpy().tobytes()
        case _:
            raise DamagedError("it is no checkpoint of a run, or of another version of fedro")
    if path.name != name_of(round):
        raise DamagedError(f"its name is not that of round {round}, which it holds")
    return Checkpoint(round, tensors, scalars), lines


def pack_tensors(tensors: Mapping[str, "Tensor"], facts: Mapping[str, Any]) -> bytes:
    """The bytes of a safetensors file: one copy, where tensors are contiguous and on the CPU.

    All facts are in one entry of the metadata, since the order of several is not always the same.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save

    ready = _apart({name: _ready(name, tensor) for name, tensor in tensors.items()})
    text = json.dumps(facts)
    try:
        return save(ready, {ENTRY: f"{_checksum(ready, text)} {text}"})
    except (KeyError, SafetensorError) as error:
        kinds = ", ".join(sorted({str(tensor.dtype) for tensor in ready.values()}))
        raise ValueError(f"safetensors cannot hold one of these, {kinds}: {error}") from None


def unpack_tensors(path: Path) -> tuple[dict[str, "Tensor"], Any]:
    """The tensors, in memory, and the facts beside them."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            names: list[str] = file.keys()
            tensors = {name: file.get_tensor(name).clone() for name in names}
    except SafetensorError as error:
        raise DamagedError(str(error)) from None
    except OSError as error:
        raise RunFolderError(
            f"cannot read {path}: {error}. Repair that, or move the file away: --resume goes on "
            "from the checkpoint before it."
        ) from error
    checksum, _, text = metadata.get(ENTRY, "").partition(" ")
    if checksum != _checksum(tensors, text):
        raise DamagedError("its checksum does not fit")
    return tensors, json.loads(text)


def _ready(name: str, tensor: "Tensor") -> "Tensor":
    """The tensor as plain memory."""
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        raise ValueError(f"tensor {name!r} must be dense and hold values, it is {tensor.layout}")
    return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()


def _apart(tensors: Mapping[str, "Tensor"]) -> dict[str, "Tensor"]:
    """The same, with copies of those that overlap in memory, which safetensors refuses."""
    apart, end = dict(tensors), 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].data_ptr()):
        if tensor.data_ptr() < end:
            apart[name] = tensor.clone()
        end = max(end, tensor.data_ptr() + tensor.nbytes)
    return apart


def _checksum(tensors: Mapping[str, "Tensor"], facts: str) -> str:
    """Of everything: names, kinds, shapes, bytes and facts."""
    import torch

    digest = hashlib.blake2b(json.dumps(facts).encode(), digest_size=32)
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        flat = tensor.as_strided((tensor.numel(),), (1,))  # reshape can leave a stride of 2
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()
