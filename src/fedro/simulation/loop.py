"""The training loop: ``for round in fedro.run(experiment): …``."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from torch import nn

from fedro.common.user_code import UserCodeError, during
from fedro.data import Federation
from fedro.server import Round, State, diagnose
from fedro.simulation.experiment import Experiment
from fedro.simulation.preparation import prepare
from fedro.simulation.round import simulate_round
from fedro.simulation.setup import Setup


def run(
    experiment: Experiment | Setup,
    *,
    federation: Federation | None = None,
    model: nn.Module | Callable[[], nn.Module] | None = None,
    state: State | None = None,
) -> Generator[Round, None, None]:
    """Train under attack on this machine, and yield each round.

    Mistakes in the experiment raise at once; training starts with the first round that is asked
    for. To write a run folder as well, use `run_into`.

    Args:
        experiment: The configuration of the run, or a setup that `prepare` has made.
        federation: The clients' data, to use instead of the experiment's `dataset`.
        model: A module, or a function that makes one, to use instead of the experiment's `model`.
            A module is copied and never changed.
        state: The state after some round, `round.state`, to continue from there. The remaining
            rounds are the same as without the interruption, to the bit.

    Returns:
        A generator of rounds. `round.state.model` is the model after the round as one vector, and
        `prepare(…).module(round.state)` makes a module of it.

    Raises:
        ExperimentError: The experiment cannot be run; the message names the keys.
        ValueError: A rule, an attack, a model or a data set cannot be made as written, or `state`
            belongs to another model.
        UserCodeError: A function of your own failed, now or in a round; the message shows the line.

    Example:
        >>> import fedro
        >>> experiment = fedro.Experiment(clients=10, rounds=2, sampled=3, tolerated=0)
        >>> [len(round.sampled) for round in fedro.run(experiment)]
        [3, 3]
    """
    setup = experiment
    if isinstance(setup, Experiment):
        setup = prepare(setup, federation=federation, model=model)
    state = state or State(0, setup.start)
    check_model_of(state, setup)
    return _public_rounds(setup, state)


def check_model_of(state: State, setup: Setup) -> None:
    """Raise ValueError if the model of a state is not one of this run."""
    if state.model.shape != setup.start.shape:
        raise ValueError(
            f"the model of this state has {len(state.model)} numbers, but the model of this run "
            f"has {len(setup.start)}"
        )


def _public_rounds(setup: Setup, state: State) -> Generator[Round, None, None]:
    try:
        yield from simulate_rounds(setup, state)
    except UserCodeError as error:
        raise error.with_traceback(None) from error.__cause__


def simulate_rounds(
    setup: Setup, state: State, earlier: Sequence[Mapping[str, Any]] = ()
) -> Generator[Round, None, None]:
    """Simulate the rounds that follow `state`, and say in the last one if the run has failed.

    `earlier` are the lines of the rounds before, as in rounds.jsonl.
    """
    check_model_of(state, setup)
    lines, last = [*earlier], setup.experiment.rounds
    with setup.make_engine() as engine:
        for number in range(state.round, last):
            with engine.threads(), during(f"in round {number}"):
                round_ = simulate_round(setup, engine, state)
            lines.append(round_.as_dict())
            if number + 1 == last:
                round_.problem = diagnose(
                    lines,
                    tolerated=setup.tolerated,
                    rule=setup.rule,
                    server_lr=setup.experiment.server_lr,
                )
            yield round_
            state = round_.state
