"""FedRo: ``for round in fedro.run(experiment): …``, one round after the other.

>>> from fedro import Experiment
>>> [len(r.sampled) for r in run(Experiment(clients=10, rounds=2, sampled=3, tolerated=0))]
[3, 3]
"""

from collections.abc import Callable, Generator

from torch import nn

from fedro.data import Federation
from fedro.server import Round, State
from fedro.simulation.experiment import Experiment
from fedro.simulation.round import simulate_round
from fedro.simulation.setup import Setup, prepare


def run(
    experiment: Experiment | Setup,
    *,
    federation: Federation | None = None,
    model: nn.Module | Callable[[], nn.Module] | None = None,
    state: State | None = None,
) -> Generator[Round, None, None]:
    """Train, and tell each round; `state` goes on where a round has ended.

    Data and a model (a module, or something that makes one) can be given as objects.
    """
    setup = experiment
    if isinstance(setup, Experiment):
        setup = prepare(setup, federation=federation, model=model)
    state = state or State(0, setup.start)
    if state.model.shape != setup.start.shape:
        raise ValueError(
            f"state has a model of {len(state.model)} numbers, and this one has {len(setup.start)}"
        )
    return _rounds(setup, state)


def _rounds(setup: Setup, state: State) -> Generator[Round, None, None]:
    with setup.make_engine() as engine:
        for _ in range(state.round, setup.experiment.rounds):
            with engine.working():
                round_ = simulate_round(setup, engine, state)
            yield round_
            state = round_.state
