"""The run folder for the one process that writes it: lines, checkpoints, the end of the run."""

import itertools
import os
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fedro.common.checks import count
from fedro.runs import checkpoints
from fedro.runs.checkpoints import Checkpoint
from fedro.runs.files import TEMPORARY, RunFolderError, explained, make_folder, write_whole
from fedro.runs.identity import check_same, describe, read_run
from fedro.runs.lines import Lines, before, parse_lines
from fedro.runs.lock import Lock
from fedro.runs.strict import to_json

if TYPE_CHECKING:
    from torch import Tensor

FILES = ("run.json", "config.toml", "rounds.jsonl", "model.safetensors", "summary.json")
KEPT = 2


class RunFolder:
    """The folder of one run.

    >>> import tempfile
    >>> path = tempfile.mkdtemp()
    >>> with RunFolder.create(path, config={"rounds": 2}, fingerprint={}) as folder:
    ...     folder.append({"round": 0, "loss": 2.3})
    >>> with RunFolder.resume(path, config={"rounds": 2}, fingerprint={}) as folder:
    ...     print(folder.latest(), folder.rounds())  # no checkpoint: start from round 0
    None []
    """

    def __init__(self, path: Path, keep: int = KEPT) -> None:
        """Take the lock; ``create`` and ``resume`` do the rest."""
        self.path, self.keep = path, count("keep", keep, 2)
        self._lines = Lines(path / "rounds.jsonl")
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
        keep: int = KEPT,
    ) -> Self:
        """Begin a run; a folder that holds one, or that is in use, is refused."""
        folder, run = Path(path), describe(config, fingerprint)
        with explained(folder, "Nothing was begun", "start again"):
            make_folder(folder)
        new = cls(folder, keep)
        try:
            _check_free(folder)
            with explained(folder / "run.json", "Nothing was begun", "start again"):
                write_whole(folder / "run.json", run)  # from here on there is a run
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
        keep: int = KEPT,
    ) -> Self:
        """Go on with a run; another machine or configuration (but for some keys) is refused."""
        folder = Path(path)
        read_run(folder)
        old = cls(folder, keep)
        try:
            check_same(folder, config, fingerprint, may_differ)
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
        """Let other processes write."""
        self._lock.release()

    @property
    def finished(self) -> bool:
        """Whether the run is complete."""
        return (self.path / "summary.json").exists()

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line to rounds.jsonl; NaN and infinities become null."""
        text = to_json(line)
        self._check()
        with self._explained(self._lines.path):
            self._lines.append(text)

    def rounds(self) -> list[dict[str, Any]]:
        """The lines until now."""
        return parse_lines(self._lines.path)

    def checkpoint(
        self, round: int, tensors: Mapping[str, "Tensor"], scalars: Mapping[str, Any]
    ) -> None:
        """Save the state after so many rounds, with the lines of rounds before; a few are kept.

        A line of this round or a later one (its key "round" counts from 0) is written again after
        a resume: whoever is interrupted between a line and its state may save the state before.
        """
        round = count("round", round, self._saved or 0)
        self._check()
        path = self.path / "checkpoints" / checkpoints.name_of(round)
        with self._explained(self._lines.path):
            lines = before(self._lines.synced(), round)
        with self._explained(path):
            write_whole(path, checkpoints.pack(round, tensors, scalars, lines))
        self._saved = round
        with self._explained(path.parent):
            checkpoints.keep_newest(path.parent, self.keep)

    def latest(self) -> Checkpoint | None:
        """The newest whole checkpoint, to which rounds.jsonl is cut back; None before the first."""
        self._check(or_finished=True)
        folder = self.path / "checkpoints"
        with self._explained(folder):
            checkpoint, lines, damaged = checkpoints.newest(folder)
        self._saved = checkpoint.round if checkpoint else None
        if not self.finished:
            with self._explained(folder):
                for path in damaged:
                    os.replace(path, path.with_name(path.name + ".damaged"))
                checkpoints.keep_newest(folder, self.keep)
            with self._explained(self._lines.path):
                self._lines.restore(lines)
        return checkpoint

    def finish(self, model: Mapping[str, "Tensor"], summary: Mapping[str, Any]) -> None:
        """Save the model and then the summary: the run is complete."""
        text = to_json(summary, indent=2)
        self._check()
        with self._explained(self._lines.path):
            self._lines.synced()
        for name, data in (
            ("model.safetensors", checkpoints.pack_tensors(model, {})),
            ("summary.json", text),
        ):
            with self._explained(self.path / name):
                write_whole(self.path / name, data)

    def _recover(self) -> None:
        """Clear what a crash left, make what it left out, and go back to the newest checkpoint."""
        leftovers = [self.path / (name + TEMPORARY) for name in FILES]
        leftovers += (self.path / "checkpoints").glob("round-*.safetensors" + TEMPORARY)
        with self._explained(self.path):
            for path in leftovers:
                path.unlink(missing_ok=True)
            make_folder(self.path / "checkpoints")
        config = self.path / "config.toml"
        if not config.exists():
            with self._explained(config):
                write_whole(config, read_run(self.path)["config"].encode())
        if not self.finished:
            self.latest()

    def _check(self, or_finished: bool = False) -> None:
        """Raise unless this process may write here."""
        if not self._lock.held:
            raise RunFolderError(f"{self.path} was closed: RunFolder.resume opens it again")
        if not self._lock.in_place():
            raise RunFolderError(
                f"{self._lock.path} is not this run's any more: the folder was moved or deleted. "
                f"{self._state()}; put it back, and {self._onward()}."
            )
        if self.finished and not or_finished:
            raise RunFolderError(f"the run in {self.path} is complete: begin another elsewhere")

    def _explained(self, path: Path) -> AbstractContextManager[None]:
        return explained(path, self._state(), self._onward())

    def _state(self) -> str:
        saved = self._saved
        return "No round is saved yet" if saved is None else f"The run is saved up to round {saved}"

    def _onward(self) -> str:
        return f"--resume goes on from {'round 0' if self._saved is None else 'there'}"


def roll_back(path: str | PathLike[str], round: int) -> list[Path]:
    """Have a run go on from the checkpoint after so many rounds; the files that are set aside.

    These are the newer checkpoints and, of a complete run, its end. Nothing is deleted.
    """
    read_run(Path(path))
    with RunFolder(Path(path)) as folder:
        saved = {
            checkpoints.round_of(p): p for p in checkpoints.listed(folder.path / "checkpoints")
        }
        if round not in saved:
            known = ", ".join(map(str, sorted(saved))) or "none"
            raise RunFolderError(
                f"{folder.path} has no checkpoint after round {round}; it has those after {known}"
            )
        try:
            checkpoints.unpack(saved[round])
        except checkpoints.DamagedError as error:
            raise RunFolderError(f"{saved[round]} is damaged: {error}. Take another") from None
        undone = [found for number, found in saved.items() if number > round]
        undone += [folder.path / name for name in FILES[-2:] if (folder.path / name).exists()]
        aside = [_aside(found) for found in undone]
        for found, new in zip(undone, aside, strict=True):
            os.replace(found, new)
        return aside


def _aside(path: Path) -> Path:
    """A free name for what is set aside, which may have happened before."""
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
