"""Recorded runs: the training loop together with a run folder."""

from collections.abc import Callable, Collection, Generator, Sequence
from pathlib import Path

from torch import nn

from fedro.common.text import counted, percent
from fedro.common.user_code import UserCodeError, during
from fedro.data import Federation
from fedro.planning.tails import all_draws_within
from fedro.runs import (
    RunFolder,
    RunFolderError,
    differences,
    other_configuration,
    read_config,
    read_given_keys,
    read_run_json,
)
from fedro.server import Round, State, summarize
from fedro.simulation.experiment import Experiment, naming_the_origin, parse_changes
from fedro.simulation.loop import simulate_rounds
from fedro.simulation.preparation import prepare
from fedro.simulation.setup import Setup

MAY_DIFFER = ("workers", "checkpoint_every")  # keys that do not affect the result
FROM_PLAN = ("sampled", "tolerated")  # keys that a plan for the number of rounds may have chosen


def open_folder(setup: Setup, path: Path, resume: bool) -> RunFolder:
    """Create the run folder, or open it again to resume its run, perhaps for other rounds."""
    e, fingerprint = setup.experiment, setup.fingerprint()
    config = e.as_dict()
    if not resume:
        given = setup.changed_keys
        return RunFolder.create(path, config=config, fingerprint=fingerprint, given=given)
    before = read_recorded(path)
    may_differ = [*MAY_DIFFER, *FROM_PLAN]  # the fingerprint has n̂ and b̂
    if before.rounds == e.rounds:
        return RunFolder.resume(path, config=config, fingerprint=fingerprint, may_differ=may_differ)
    may_differ.append("rounds")
    folder = RunFolder.resume(path, config=config, fingerprint=fingerprint, may_differ=may_differ)
    try:
        _extend(folder, before, setup)
    except BaseException:
        folder.close()
        raise
    return folder


def _extend(folder: RunFolder, before: Experiment, setup: Setup) -> None:
    """Change the number of rounds of a run, and record its n̂ and b̂ with it."""
    rounds, latest = setup.experiment.rounds, folder.latest()
    done = before.rounds if folder.finished else 0 if latest is None else latest.round
    if rounds <= done:
        raise RunFolderError(
            f"rounds={rounds}: the run in {folder.path} has {counted(done, 'round')} already; give "
            f"more than {done}, or begin another run in another folder"
        )
    folder.extend({"rounds": rounds, "sampled": setup.sampled, "tolerated": setup.tolerated})


def continued(path: Path, experiment: Experiment) -> Experiment:
    """The experiment with which the run in a folder goes on.

    If the experiment leaves n̂ and b̂ to the plan, they stay those of the run, although a plan for
    another number of rounds, or one of a later version, might choose others: all rounds of a run
    are sampled alike.

    Raises:
        RunFolderError: The run cannot have another number of rounds.
    """
    run, before = read_run_json(path), read_recorded(path)
    if before.rounds != experiment.rounds and before.output == "random":
        raise RunFolderError(
            f"rounds={experiment.rounds}: the run in {path} has rounds={before.rounds} and "
            'output="random", which draws the model that it returns from all of its rounds; begin '
            "another run in another folder"
        )
    chosen = {key: run["fingerprint"][key] for key in FROM_PLAN if getattr(experiment, key) is None}
    return experiment.replace(**chosen)


def extension_note(setup: Setup, path: Path) -> str | None:
    """How another number of rounds changes the probability of no overrun; None if it stays."""
    before, now = read_recorded(path).rounds, setup.experiment.rounds
    if before == now:
        return None
    change = f"{counted(now, 'round')} instead of {before}"
    byzantine = int(setup.byzantine.sum())
    if not byzantine:
        return change
    safe, safe_before = (
        all_draws_within(
            setup.tolerated, setup.federation.clients, byzantine, setup.sampled, rounds
        )
        for rounds in (now, before)
    )
    return (
        f"{change}: all of them stay within b̂ = {setup.tolerated} with probability "
        f"{percent(safe)} ({percent(safe_before)} for {before}; wanted: "
        f"{percent(setup.experiment.confidence)})"
    )


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
    if unsaved is not None:  # so that the run can be extended from its end
        folder.checkpoint(unsaved.round, unsaved.tensors(), {})
    summary = summarize(
        folder.rounds(),
        sampled=setup.sampled,
        tolerated=setup.tolerated,
        rule=setup.rule,
        server_lr=setup.experiment.server_lr,
        evaluate_every=setup.experiment.evaluate_every,
        examples=setup.federation.sizes.tolist(),
    )
    data = setup.federation
    summary |= {"test_examples": data.test_sizes.tolist(), "classes": data.classes}
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

    With `resume`, the experiment may have another number of rounds than the run, as in
    ``experiment.replace(rounds=100)``, also if the run is complete. The run then goes on with the
    numbers of sampled and tolerated clients that it has, and gives the same bits as a run with
    these numbers and this number of rounds from the start.

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
            experiment or machine, or another process uses it; or the run cannot have this number of
            rounds, because it has as many already, or draws its output from all of them.
        UserCodeError: A function of your own failed; the message shows the line. Correct it and
            resume the run.

    Example:
        >>> import fedro
        >>> experiment = fedro.read_experiment("demo")
        >>> for round in fedro.run_into("runs/first", experiment):  # doctest: +SKIP
        ...     print(round.round, round.train_loss)
    """
    if resume:
        experiment = continued(Path(path), experiment)
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


def differences_to(
    experiment: Experiment, path: Path, may_differ: Collection[str] = MAY_DIFFER
) -> str:
    """One line for each key in which the run in a folder differs from this experiment.

    A key that `prepare` changed when the run began may have the given or the used value, and what
    the experiment leaves to the plan may have any.
    """
    run = read_recorded(path)
    may_differ = [*may_differ, *(key for key in FROM_PLAN if getattr(experiment, key) is None)]
    given = (experiment.for_clients(run.clients) if run.clients else experiment).as_dict()
    changed = read_given_keys(path).items()
    recorded = run.as_dict() | {key: value for key, value in changed if given.get(key) == value}
    return differences(recorded, given, "given now", may_differ)


def read_recorded(path: Path) -> Experiment:
    """The experiment of the run in a folder."""
    return Experiment(**read_config(path))


def read_changed(path: Path, changes: Sequence[str]) -> Experiment:
    """The experiment of the run in a folder with changes like ``"rounds=100"``.

    Raises:
        RunFolderError: A change is not possible for a run that has begun.
    """
    with naming_the_origin(path / "config.toml", changes):
        experiment = read_recorded(path).replace(**parse_changes(changes))
    if lines := differences_to(experiment, path, (*MAY_DIFFER, "rounds")):
        raise other_configuration(path, lines)
    return experiment
