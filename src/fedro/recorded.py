"""A run that is written down: training and the run folder, put together."""

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from fedro.data import Federation
from fedro.experiment import Experiment
from fedro.record import RunFolder, RunFolderError, differences, read_config
from fedro.rounds import Round
from fedro.server import State
from fedro.setup import Setup, prepare
from fedro.training import run

LAST = 3  # evaluations that the mean of the last ones is over
MAY_DIFFER = ("workers", "checkpoint_every")  # keys that change no bit of the result


def open_folder(setup: Setup, path: Path, resume: bool) -> RunFolder:
    """The run's folder: a new one, or the one to go on with."""
    config, fingerprint = setup.experiment.as_dict(), setup.fingerprint()
    if resume:
        return RunFolder.resume(path, config=config, fingerprint=fingerprint, may_differ=MAY_DIFFER)
    return RunFolder.create(path, config=config, fingerprint=fingerprint)


def recorded_run(setup: Setup, folder: RunFolder) -> Generator[Round, None, None]:
    """Train from where the folder's run has ended, and write everything down.

    However it is stopped, the folder holds a run that can be resumed to the same bits.
    """
    latest = folder.latest()
    state = None if latest is None else State.from_tensors(latest.round, latest.tensors)
    unsaved: State | None = None
    try:
        for done in run(setup, state=state):
            folder.append(done.as_dict())
            state = unsaved = done.state
            if state.round % setup.experiment.checkpoint_every == 0:
                folder.checkpoint(state.round, state.tensors(), {})
                unsaved = None
            yield done
    except BaseException as error:
        if unsaved is not None and not isinstance(error, RunFolderError):
            folder.checkpoint(unsaved.round, unsaved.tensors(), {})
        raise
    assert state is not None
    folder.finish(setup.flat.tensors(state.output), summarize(setup, folder.rounds()))


def run_into(
    path: Path | str,
    experiment: Experiment,
    *,
    federation: Federation | None = None,
    model: nn.Module | Callable[[], nn.Module] | None = None,
    resume: bool = False,
) -> Generator[Round, None, None]:
    """Like `run`, and everything is written down in a folder; with `resume`, go on there."""
    setup = prepare(experiment, federation=federation, model=model)
    folder = open_folder(setup, Path(path), resume)
    return _into(setup, folder)


def _into(setup: Setup, folder: RunFolder) -> Generator[Round, None, None]:
    with folder:
        if not folder.finished:
            yield from recorded_run(setup, folder)


def summarize(setup: Setup, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """What a run came to: the final model, never the best over the rounds."""
    scores = [line["score"] for line in rounds if "score" in line][-LAST:]
    bad = np.array([len(line["byzantine"]) for line in rounds])
    return {
        "final": rounds[-1]["final"],
        "mean_of_last": {key: _mean([score.get(key) for score in scores]) for key in scores[-1]},
        "evaluations_in_mean": len(scores),
        "rounds": len(rounds),
        "void": sum(line["void"] is not None for line in rounds),
        "takeovers": sum(line["takeover"] for line in rounds),
        "overrun": int((bad > setup.tolerated).sum()),
        "most_byzantine": int(bad.max()),
        "sampled": setup.sampled,
        "tolerated": setup.tolerated,
        "rejected": sum(len(line["rejected"]) for line in rounds),
        "missing": sum(len(line["missing"]) for line in rounds),
        "seconds": sum(sum(line["seconds"].values()) for line in rounds),
        "examples": setup.federation.sizes.tolist(),  # that each client trains on
    }


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def differences_to(experiment: Experiment, path: Path) -> str:
    """A line for each key in which the run in a folder is another experiment; '' if it is not."""
    begun, given = experiment_of(path).as_dict(), experiment.as_dict()
    return differences(begun, given, "given now", MAY_DIFFER)


def experiment_of(path: Path) -> Experiment:
    """The experiment whose run a folder holds."""
    return Experiment(**read_config(path))
