"""Recorded runs: the training loop together with a run folder."""

from collections.abc import Callable, Generator
from pathlib import Path

from torch import nn

from fedro.common.user_code import UserCodeError, during
from fedro.data import Federation
from fedro.runs import RunFolder, RunFolderError, differences, read_config
from fedro.server import Round, State, summarize
from fedro.simulation.experiment import Experiment
from fedro.simulation.loop import simulate_rounds
from fedro.simulation.preparation import prepare
from fedro.simulation.setup import Setup

MAY_DIFFER = ("workers", "checkpoint_every")  # keys that do not affect the result


def open_folder(setup: Setup, path: Path, resume: bool) -> RunFolder:
    """Create the run folder, or open it again to resume its run."""
    config, fingerprint = setup.experiment.as_dict(), setup.fingerprint()
    if resume:
        return RunFolder.resume(path, config=config, fingerprint=fingerprint, may_differ=MAY_DIFFER)
    return RunFolder.create(path, config=config, fingerprint=fingerprint)


def recorded_run(setup: Setup, folder: RunFolder) -> Generator[Round, None, None]:
    """Train from the folder's latest checkpoint, record every round, and yield it.

    However it is stopped, the folder holds a run that can be resumed to the same bits.
    """
    latest = folder.latest()
    if latest is None:
        state = State(0, setup.start)
    else:
        state = State.from_tensors(latest.round, latest.tensors)
    unsaved: State | None = None
    try:
        for round_ in simulate_rounds(setup, state, folder.rounds()):
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
    summary = summarize(
        folder.rounds(),
        sampled=setup.sampled,
        tolerated=setup.tolerated,
        rule=setup.rule,
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
    """Train like `run`, and record the run in a folder.

    The folder holds the configuration, a line of JSON for each round, checkpoints, and in the end
    the model and a summary. A run that stops for any reason can be resumed, and then gives the same
    bits as without the interruption.

    Args:
        path: The run folder. It is created, and must not hold a run unless `resume` is true.
        experiment: The configuration of the run.
        federation: The clients' data, to use instead of the experiment's `dataset`.
        model: A module, or a function that makes one, to use instead of the experiment's `model`.
            A module is copied and never changed.
        resume: Continue the run in the folder. If it is complete, there are no rounds.

    Returns:
        A generator of rounds, which must be consumed for the run to proceed.

    Raises:
        ExperimentError: The experiment cannot be run; the message names the keys.
        RunFolderError: The folder holds a run already, a damaged run, or the run of another
            experiment or machine, or another process uses it.
        UserCodeError: A function of your own failed; the message shows the line. Correct it and
            resume the run.

    Example:
        >>> import fedro
        >>> experiment = fedro.read_experiment("demo")
        >>> for round in fedro.run_into("runs/first", experiment):  # doctest: +SKIP
        ...     print(round.round, round.train_loss)
    """
    setup = prepare(experiment, federation=federation, model=model)
    folder = open_folder(setup, Path(path), resume)
    return _run_in(setup, folder)


def _run_in(setup: Setup, folder: RunFolder) -> Generator[Round, None, None]:
    advice = f"The run is saved in {folder.path}: run_into(…, resume=True) continues it."
    try:
        with folder, during("", advice):
            if not folder.finished:
                yield from recorded_run(setup, folder)
    except UserCodeError as error:
        raise error.with_traceback(None) from error.__cause__


def differences_to(experiment: Experiment, path: Path) -> str:
    """One line for each key in which the run in a folder differs from this experiment."""
    recorded = read_recorded(path)
    given = experiment.for_clients(recorded.clients) if recorded.clients else experiment
    return differences(recorded.as_dict(), given.as_dict(), "given now", MAY_DIFFER)


def read_recorded(path: Path) -> Experiment:
    """The experiment of the run in a folder."""
    return Experiment(**read_config(path))
