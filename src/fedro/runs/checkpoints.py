"""Checkpoints: the state of a run in one safetensors file with a checksum."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedro.runs.errors import DamagedError, RunFolderError
from fedro.runs.json_lines import as_plain
from fedro.runs.round_lines import LinesMark

if TYPE_CHECKING:
    from torch import Tensor

METADATA_KEY = "fedro"  # its value is the checksum and the facts
FILE_NAME = re.compile(r"round-\d{6,}\.safetensors")


class Checkpoint(NamedTuple):
    """The state of a run.

    Attributes:
        round: The number of rounds that are finished.
        tensors: The model and other tensors, by name.
        scalars: Numbers, strings, lists and dicts, by name.
    """

    round: int
    tensors: dict[str, "Tensor"]
    scalars: dict[str, Any]


def file_name(round: int) -> str:
    """Return the name of the file with the state after so many rounds."""
    return f"round-{round:06d}.safetensors"


def round_in_name(path: Path) -> int:
    """Return the number of rounds in the name of a checkpoint's file."""
    return int(path.stem.removeprefix("round-"))


def list_files(folder: Path) -> list[Path]:
    """List the checkpoints in a folder, newest first."""
    paths = [path for path in folder.iterdir() if FILE_NAME.fullmatch(path.name)]
    return sorted(paths, key=lambda path: (len(path.name), path.name), reverse=True)


def keep_newest(folder: Path, number: int) -> None:
    """Delete all but the newest checkpoints."""
    for path in list_files(folder)[number:]:
        path.unlink(missing_ok=True)


def load_newest(
    folder: Path, find_lines: Callable[[LinesMark], bytes]
) -> tuple[Checkpoint | None, bytes, list[Path]]:
    """Load the newest checkpoint that is intact and whose lines are.

    Args:
        folder: The folder with the checkpoints.
        find_lines: Returns the lines up to a mark, or raises a `DamagedError`.

    Returns:
        The checkpoint, its lines, and the files of newer ones, which are damaged.
    """
    damaged: dict[Path, str] = {}
    for path in list_files(folder):
        try:
            checkpoint, mark = unpack(path)
            return checkpoint, find_lines(mark), list(damaged)
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
    round: int, tensors: Mapping[str, "Tensor"], scalars: Mapping[str, Any], mark: LinesMark
) -> bytes:
    """Encode a checkpoint; scalars that are NaN or infinite are kept."""
    facts = {
        "round": round,
        "scalars": as_plain(scalars, finite=False),
        "lines": mark._asdict(),
    }
    return pack_tensors(tensors, facts)


def unpack(path: Path) -> tuple[Checkpoint, LinesMark]:
    """Decode a checkpoint, and where its lines end in rounds.jsonl.

    Raises:
        DamagedError: The file is not as it was written.
    """
    tensors, facts = unpack_tensors(path)
    match facts:
        case {
            "round": int(round),
            "scalars": dict(scalars),
            "lines": {"size": int(size), "digest": str(digest)},
        }:
            mark = LinesMark(size, digest)
        case _:
            raise DamagedError("it is not a checkpoint, or another version of fedro wrote it")
    if path.name != file_name(round):
        raise DamagedError(f"it holds round {round}, but its name says another")
    return Checkpoint(round, tensors, scalars), mark


def pack_tensors(tensors: Mapping[str, "Tensor"], facts: Mapping[str, Any]) -> bytes:
    """Encode tensors and facts as a safetensors file.

    Contiguous tensors on the CPU are copied only once. All facts are in one entry of the metadata,
    because safetensors does not keep the order of several.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save

    dense = _without_overlaps({name: _dense(name, tensor) for name, tensor in tensors.items()})
    text = json.dumps(facts)
    try:
        return save(dense, {METADATA_KEY: f"{_checksum(dense, text)} {text}"})
    except (KeyError, SafetensorError) as error:
        kinds = ", ".join(sorted({str(tensor.dtype) for tensor in dense.values()}))
        raise ValueError(f"safetensors cannot hold one of these, {kinds}: {error}") from None


def unpack_tensors(path: Path) -> tuple[dict[str, "Tensor"], Any]:
    """Read the tensors of a file into memory, and the facts."""
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
    checksum, _, text = metadata.get(METADATA_KEY, "").partition(" ")
    if checksum != _checksum(tensors, text):
        raise DamagedError("its checksum does not match")
    return tensors, json.loads(text)


def _dense(name: str, tensor: "Tensor") -> "Tensor":
    """Return the tensor as contiguous memory on the CPU."""
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        raise ValueError(f"tensor {name!r} must be dense and hold values, it is {tensor.layout}")
    return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()


def _without_overlaps(tensors: Mapping[str, "Tensor"]) -> dict[str, "Tensor"]:
    """Copy the tensors that overlap others in memory, which safetensors refuses to save."""
    separate, end = dict(tensors), 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].data_ptr()):
        if tensor.data_ptr() < end:
            separate[name] = tensor.clone()
        end = max(end, tensor.data_ptr() + tensor.nbytes)
    return separate


def _checksum(tensors: Mapping[str, "Tensor"], facts: str) -> str:
    """Hash everything: names, types, shapes, bytes and facts."""
    import torch

    digest = hashlib.blake2b(json.dumps(facts).encode(), digest_size=32)
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        flat = tensor.as_strided((tensor.numel(),), (1,))  # reshape can leave a stride of 2
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()
