"""`RunFolder`: the run folder as seen by the process that writes it."""

import itertools
import os
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fedro.common.atomic_files import (
    make_folder_durably,
    sync_folder,
    temporary_name,
    write_atomically,
)
from fedro.common.checks import count
from fedro.runs import checkpoints
from fedro.runs.checkpoints import Checkpoint
from fedro.runs.errors import DamagedError, RunFolderError, explained, read_bytes
from fedro.runs.json_lines import parse_lines, to_json
from fedro.runs.lock import Lock
from fedro.runs.reading import (
    check_same_run,
    extended_run_json,
    make_run_json,
    read_run_json,
)
from fedro.runs.round_lines import RoundLines

if TYPE_CHECKING:
    from torch import Tensor

FILES = ("run.json", "config.toml", "rounds.jsonl", "model.safetensors", "summary.json")
LINES_COPY = Path("checkpoints", "rounds.jsonl")
KEPT_CHECKPOINTS = 2


class RunFolder:
    """The folder of one run, locked for this process until `close`.

    Make one with `create` or `resume` and use it in a ``with`` block.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp()
        >>> with RunFolder.create(path, config={"rounds": 2}, fingerprint={}) as folder:
        ...     folder.append({"round": 0, "loss": 2.3})
        >>> with RunFolder.resume(path, config={"rounds": 2}, fingerprint={}) as folder:
        ...     print(folder.latest(), folder.rounds())  # no checkpoint: start from round 0
        None []
    """

    def __init__(self, path: Path, keep: int = KEPT_CHECKPOINTS) -> None:
        """Take the lock; ``create`` and ``resume`` do the rest."""
        self.path, self.keep = path, count("keep", keep, 2)
        self._lines = RoundLines(path / "rounds.jsonl", path / LINES_COPY)
        self._saved: int | None = None  # the round of the newest checkpoint
        with explained(path / "lock", "The folder is as it was", "try again"):
            self._lock = Lock(path)

    @classmethod
    def create(
        cls,
        path: str | PathLike[str],
        config: Mapping[str, Any],
        fingerprint: Mapping[str, Any],
        *,
        given: Mapping[str, Any] | None = None,
        keep: int = KEPT_CHECKPOINTS,
    ) -> Self:
        """Begin a run.

        Args:
            path: The folder; it is created if it does not exist.
            config: The configuration, written to config.toml. Values of None are left out.
            fingerprint: What must be equal for a resumed run to give the same bits.
            given: The values that the user gave for keys of which `config` has other values.
            keep: The number of checkpoints to keep, at least 2.

        Raises:
            RunFolderError: The folder holds a run, is in use, or cannot be written.
        """
        folder, run = Path(path), make_run_json(config, fingerprint, given or {})
        with explained(folder, "Nothing was begun", "start again"):
            make_folder_durably(folder)
        new = cls(folder, keep)
        try:
            _check_free(folder)
            with explained(folder / "run.json", "Nothing was begun", "start again"):
                _write(folder / "run.json", run)  # from here on there is a run
            new._recover()
        except BaseException:
            new.close()
            raise
        return new

    @classmethod
    def resume(
        cls,
        path: str | PathLike[str],
        config: Mapping[str, Any],
        fingerprint: Mapping[str, Any],
        *,
        may_differ: Collection[str] = (),
        keep: int = KEPT_CHECKPOINTS,
    ) -> Self:
        """Open the folder of a run and go back to its newest checkpoint.

        Args:
            path: The folder.
            config: The configuration, which must be that of the run.
            fingerprint: The fingerprint, which must be that of the run.
            may_differ: Keys of the configuration that may differ.
            keep: The number of checkpoints to keep, at least 2.

        Raises:
            RunFolderError: There is no run, it differs, it is in use, or all its checkpoints are
                damaged.
        """
        folder = Path(path)
        read_run_json(folder)
        old = cls(folder, keep)
        try:
            check_same_run(folder, config, fingerprint, may_differ)
            old._recover()
        except BaseException:
            old.close()
            raise
        return old

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock, so that another process can write."""
        self._lock.release()

    @property
    def finished(self) -> bool:
        """Whether the run is complete."""
        return (self.path / "summary.json").exists()

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line to rounds.jsonl; NaN and infinities become null."""
        text = to_json(line)
        self._check()
        with self._explained(self._lines.file.path):
            self._lines.append(text)

    def rounds(self) -> list[dict[str, Any]]:
        """Return the lines of rounds.jsonl."""
        return parse_lines(self._lines.file.path)

    def checkpoint(
        self, round: int, tensors: Mapping[str, "Tensor"], scalars: Mapping[str, Any]
    ) -> None:
        """Save the state after so many rounds, and delete the oldest checkpoints.

        The checkpoint also holds where the lines of the rounds before end in rounds.jsonl, and
        their hash. Lines of this round or a later one (their key "round" counts from 0) are left
        out, so a run that is interrupted between a line and its state can save the state before and
        write the line again after a resume.

        Args:
            round: The number of rounds that are finished.
            tensors: Dense tensors; they come back bit for bit.
            scalars: What JSON can hold; NaN and infinities are kept.

        Raises:
            ValueError: `round` is less than that of the last checkpoint, or safetensors cannot hold
                one of the tensors.
            RunFolderError: The file cannot be written.
        """
        round = count("round", round, self._saved or 0)
        self._check()
        path = self.path / "checkpoints" / checkpoints.file_name(round)
        with self._explained(self._lines.file.path):
            self._lines.file.sync()
        with self._explained(self._lines.copy.path):
            mark = self._lines.save_before(round)
        with self._explained(path):
            _write(path, checkpoints.pack(round, tensors, scalars, mark))
        self._lines.saved(mark)
        self._saved = round
        with self._explained(path.parent):
            checkpoints.keep_newest(path.parent, self.keep)

    def latest(self) -> Checkpoint | None:
        """Load the newest intact checkpoint and cut rounds.jsonl back to it; None if absent."""
        self._check(or_finished=True)
        folder = self.path / "checkpoints"
        with self._explained(folder):
            checkpoint, lines, damaged = checkpoints.load_newest(folder, self._lines.find)
        self._saved = checkpoint.round if checkpoint else None
        if not self.finished:
            with self._explained(folder):
                for path in damaged:
                    os.replace(path, path.with_name(path.name + ".damaged"))
                checkpoints.keep_newest(folder, self.keep)
            with self._explained(self._lines.file.path):
                self._lines.restore(lines)
        return checkpoint

    def finish(self, model: Mapping[str, "Tensor"], summary: Mapping[str, Any]) -> None:
        """Save the model and then the summary, which completes the run."""
        text = to_json(summary, indent=2)
        self._check()
        with self._explained(self._lines.file.path):
            self._lines.file.sync()
        for name, data in (
            ("model.safetensors", checkpoints.pack_tensors(model, {})),
            ("summary.json", text),
        ):
            with self._explained(self.path / name):
                _write(self.path / name, data)

    def extend(self, changes: Mapping[str, Any]) -> None:
        """Change keys of the configuration, such as the number of rounds, and go on with the run.

        The model and the summary of a complete run are renamed to ``*.undone``. A crash at any time
        leaves a run that can be resumed: before run.json is written, with the old configuration,
        which completes the old run again; afterwards, with the new one.

        Args:
            changes: The new values by key.

        Raises:
            RunFolderError: All checkpoints are damaged, or a file cannot be written.
        """
        self.latest()  # raises before anything is changed
        run = extended_run_json(read_run_json(self.path), changes)
        with self._explained(self.path):
            for name in reversed(FILES[-2:]):  # the summary first: a run with it is complete
                file = self.path / name
                if file.exists():
                    os.replace(file, _undone_name(file))
                    sync_folder(self.path)
            (self.path / "config.toml").unlink(missing_ok=True)  # written again from run.json
            sync_folder(self.path)
            _write(self.path / "run.json", run)
        self._recover()

    def _recover(self) -> None:
        """Repair what a crash left, and go back to the newest checkpoint."""
        leftovers = [self.path / temporary_name(name) for name in FILES]
        leftovers += (self.path / "checkpoints").glob(temporary_name("round-*.safetensors"))
        leftovers.append(self.path / temporary_name(str(LINES_COPY)))
        with self._explained(self.path):
            for path in leftovers:
                path.unlink(missing_ok=True)
            make_folder_durably(self.path / "checkpoints")
        config = self.path / "config.toml"
        if not config.exists():
            with self._explained(config):
                _write(config, read_run_json(self.path)["config"].encode())
        if not self.finished:
            self.latest()

    def _check(self, or_finished: bool = False) -> None:
        """Raise unless this process may write here."""
        if not self._lock.held:
            raise RunFolderError(f"{self.path} was closed: RunFolder.resume opens it again")
        if not self._lock.in_place():
            raise RunFolderError(
                f"{self._lock.path} is not this run's any more: the folder was moved or deleted. "
                f"{self._saved_state()}; put it back, and {self._next_step()}."
            )
        if self.finished and not or_finished:
            raise RunFolderError(f"the run in {self.path} is complete: begin another elsewhere")

    def _explained(self, path: Path) -> AbstractContextManager[None]:
        return explained(path, self._saved_state(), self._next_step())

    def _saved_state(self) -> str:
        saved = self._saved
        return "No round is saved yet" if saved is None else f"The run is saved up to round {saved}"

    def _next_step(self) -> str:
        return f"--resume goes on from {'round 0' if self._saved is None else 'there'}"


def roll_back(path: str | PathLike[str], round: int) -> list[Path]:
    """Make a run resume from an older checkpoint.

    Newer checkpoints and, of a complete run, the model and the summary are renamed to
    ``*.undone``, and rounds.jsonl is copied to ``rounds.jsonl.undone``. Nothing is deleted.

    Args:
        path: The run folder.
        round: The number of rounds after which the checkpoint was saved.

    Returns:
        The renamed files.

    Raises:
        RunFolderError: There is no such checkpoint, or it is damaged.
    """
    read_run_json(Path(path))
    with RunFolder(Path(path)) as folder:
        saved = {
            checkpoints.round_in_name(p): p
            for p in checkpoints.list_files(folder.path / "checkpoints")
        }
        if round not in saved:
            known = ", ".join(map(str, sorted(saved))) or "none"
            raise RunFolderError(
                f"{folder.path} has no checkpoint after round {round}; it has those after {known}"
            )
        try:
            lines = folder._lines.find(checkpoints.unpack(saved[round])[1])
        except DamagedError as error:
            raise RunFolderError(f"{saved[round]} is damaged: {error}. Take another") from None
        _keep_undone(folder.path / "rounds.jsonl", lines)
        undone = [file for number, file in saved.items() if number > round]
        undone += [folder.path / name for name in FILES[-2:] if (folder.path / name).exists()]
        renamed = [_undone_name(file) for file in undone]
        for file, new in zip(undone, renamed, strict=True):
            os.replace(file, new)
        return renamed


def _keep_undone(rounds: Path, lines: bytes) -> None:
    """Copy rounds.jsonl if it has more than the lines that stay."""
    now = read_bytes(rounds) or b""
    if now != lines:
        copy = _undone_name(rounds)
        with explained(copy, "Nothing was undone", "try again"):
            _write(copy, now)


def _undone_name(path: Path) -> Path:
    """Return a free name; the run may have been rolled back before."""
    names = (f"{path.name}.undone{number or ''}" for number in itertools.count())
    return next(new for name in names if not (new := path.with_name(name)).exists())


def _check_free(folder: Path) -> None:
    """Raise if the folder has files of a run."""
    taken = [name for name in (*FILES, "checkpoints") if (folder / name).exists()]
    if "run.json" in taken:
        raise RunFolderError(
            f"{folder} holds a run: --resume goes on with it, or use another folder"
        )
    if taken:
        raise RunFolderError(
            f"{folder} has files that a run would overwrite ({', '.join(taken)}): move them away, "
            "or use another folder"
        )


def _write(path: Path, data: bytes) -> None:
    """Write a file that survives a power cut; a folder that was deleted is not made again."""
    write_atomically(path, data, durable=True, make_folder=False, fixed_name=True)
