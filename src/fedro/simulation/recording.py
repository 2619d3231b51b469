"""A run that is written down: training and the run folder, put together."""

from collections.abc import Callable, Generator
from pathlib import Path

from torch import nn

from fedro.data import Federation
from fedro.runs import RunFolder, RunFolderError, differences, read_config
from fedro.server import Round, State, summarize
from fedro.simulation.experiment import Experiment
from fedro.simulation.loop import run
from fedro.simulation.setup import Setup, prepare

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
        for round_ in run(setup, state=state):
            folder.append(round_.as_dict())
            state = unsaved = round_.state
            if state.round % setup.experiment.checkpoint_every == 0:
                folder.checkpoint(state.round, state.tensors(), {})
                unsaved = None
            yield round_
    except BaseException as error:
        if unsaved is not None and not isinstance(error, RunFolderError):
            folder.checkpoint(unsaved.round, unsaved.tensors(), {})
        raise
    assert state is not None
    summary = summarize(
        folder.rounds(),
        sampled=setup.sampled,
        tolerated=setup.tolerated,
        examples=setup.federation.sizes.tolist(),
    )
    folder.finish(setup.flat.tensors(state.output), summary)


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


def differences_to(experiment: Experiment, path: Path) -> str:
    """A line for each key in which the run in a folder is another experiment; '' if it is not."""
    begun, given = experiment_of(path).as_dict(), experiment.as_dict()
    return differences(begun, given, "given now", MAY_DIFFER)


def experiment_of(path: Path) -> Experiment:
    """The experiment whose run a folder holds."""
    return Experiment(**read_config(path))
