"""Prepare a run: from an experiment to a setup, with all checks that need no training."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from fedro.attacks import parse_attack
from fedro.common.streams import seeded, stream
from fedro.common.text import counted, percent
from fedro.common.user_code import UserCode, UserCodeError, during
from fedro.data import Examples, Federation, make_federation
from fedro.models import FlatModel, build, seeded_module
from fedro.planning import plan
from fedro.planning.tails import all_draws_within
from fedro.rules import NoAggregateError, Rule, parse_rule
from fedro.server import is_robust
from fedro.simulation.client import evaluate, local_update
from fedro.simulation.components import check_rule, default_model
from fedro.simulation.experiment import Experiment, ExperimentError
from fedro.simulation.setup import Setup, draw_batches, output_size

MAX_BATCH_PER_EXAMPLE = 10  # a larger batch only repeats a client's examples and takes longer


def prepare(
    experiment: Experiment,
    *,
    federation: Federation | None = None,
    model: nn.Module | Callable[[], nn.Module] | None = None,
) -> Setup:
    """Make everything that a run needs, and check all that can be checked before training.

    `prepare` loads the data, builds the model, chooses `sampled` and `tolerated` from the plan if
    the experiment leaves them open, and tries one training step and one evaluation.

    Args:
        experiment: The configuration of the run.
        federation: The clients' data, to use instead of the experiment's `dataset`.
        model: A module, or a function that makes one, to use instead of the experiment's `model`.
            A module is copied and never changed.

    Returns:
        The setup, which `run` accepts in place of an experiment. `setup.sampled` and
        `setup.tolerated` are the chosen numbers, and `setup.module(state)` is a trained module.
        `setup.warnings` says if the choice is not safe, and if `setup.experiment` has a smaller
        batch size than the given experiment.

    Raises:
        ExperimentError: The experiment cannot be run; the message names the keys.
        ValueError: A rule, an attack, a model or a data set cannot be made as written.
        UserCodeError: A function of your own failed; the message shows the line.

    Example:
        >>> import fedro
        >>> setup = fedro.prepare(fedro.Experiment(clients=50, byzantine=5, rounds=30))
        >>> setup.sampled, setup.tolerated
        (15, 5)
    """
    try:
        return _prepare(experiment, federation, model)
    except UserCodeError as error:
        raise error.with_traceback(None) from error.__cause__


def _prepare(experiment: Experiment, federation: Federation | None, model: Any) -> Setup:
    rule, attack = parse_rule(experiment.rule), parse_attack(experiment.attack)
    federation = federation or make_federation(
        experiment.dataset,
        clients=experiment.clients,
        partition=experiment.partition,
        seed=experiment.seed,
    )
    if experiment.clients not in (None, federation.clients):
        raise ExperimentError(
            f"clients={experiment.clients}, but the given federation has {federation.clients}"
        )
    experiment = experiment.for_clients(federation.clients)
    if experiment.byzantine >= federation.clients:
        raise ExperimentError(
            f"byzantine={experiment.byzantine} of {federation.clients} clients: at least one must "
            "be honest"
        )
    sampled, tolerated, warnings = choose_sample_size(experiment, rule, federation.clients)
    given, (experiment, more) = experiment, limit_batch(experiment, federation)
    warnings += more
    check_rule(rule, experiment)
    try:
        rule.kappa(sampled, tolerated)
    except NoAggregateError as error:
        numbers = f"sampled={sampled} and tolerated={tolerated}"
        raise ExperimentError(f"rule={experiment.rule!r} with {numbers}: {error}") from None
    name = None if model else experiment.model or default_model(experiment.dataset)
    setup = Setup(
        experiment=experiment,
        federation=federation,
        build=_builder(model if name is None else name, federation, experiment.seed),
        model_name=name,
        rule=rule,
        attack=attack,
        sampled=sampled,
        tolerated=tolerated,
        root=_root_examples(experiment, federation),
        warnings=tuple(warnings),
        given=given,
    )
    rng = stream(experiment.seed, "trial")
    _try_training(setup, rng)
    _try_attack(setup, rng)
    return setup


def choose_sample_size(
    experiment: Experiment, rule: Rule, clients: int
) -> tuple[int, int, list[str]]:
    """n̂ and b̂, from the plan for the rule unless the experiment has them, and warnings."""
    sampled, tolerated = experiment.sampled, experiment.tolerated
    if sampled is not None and sampled > clients:
        raise ExperimentError(f"sampled={sampled}: there are only {clients} clients")
    if tolerated is None:
        chosen = plan(
            clients=clients,
            byzantine=experiment.byzantine,
            rounds=experiment.rounds,
            confidence=experiment.confidence,
            bound=experiment.bound,
            sampled=sampled,
            rule=rule if is_robust(rule) else None,
        )
        return chosen.sampled, chosen.tolerated, []
    assert sampled is not None  # the experiment has checked it
    safe = all_draws_within(tolerated, clients, experiment.byzantine, sampled, experiment.rounds)
    if safe >= experiment.confidence:
        return sampled, tolerated, []
    return sampled, tolerated, [_unsafe_choice(experiment, clients, safe)]


def _unsafe_choice(experiment: Experiment, clients: int, safe: float) -> str:
    """The warning that a choice of n̂ and b̂ is not safe."""
    return (
        f"Not safe: with {experiment.byzantine} Byzantine clients of {clients}, sampling "
        f"{experiment.sampled} and tolerating {experiment.tolerated}, all {experiment.rounds} "
        f"rounds stay within the tolerance with a probability of only {percent(safe)} (wanted: "
        f"{percent(experiment.confidence)}). `fedro plan --clients {clients} --byzantine "
        f"{experiment.byzantine} --rounds {experiment.rounds}` finds a safe choice."
    )


def limit_batch(experiment: Experiment, federation: Federation) -> tuple[Experiment, list[str]]:
    """The experiment with a batch size that suits the clients' data, and a warning if it changed.

    Batches are drawn with replacement, so a batch may be larger than a client's data.
    """
    given, largest = experiment.batch_size, int(federation.sizes.max())
    used = MAX_BATCH_PER_EXAMPLE * largest
    if given <= used:
        return experiment, []
    warning = (
        f"batch_size={given:,} is far more than the {counted(largest, 'training example')} of the "
        f"largest client. Examples are drawn with replacement, so such a batch repeats each of "
        f"them many times and takes long. The run uses batch_size={used:,}, "
        f"{MAX_BATCH_PER_EXAMPLE} times the examples of the largest client."
    )
    return experiment.model_copy(update={"batch_size": used}), [warning]


def _builder(model: Any, federation: Federation, seed: int) -> Callable[[], nn.Module]:
    """A function that makes the same module each time, from a text, a module or a function."""
    if isinstance(model, str):
        return lambda: build(model, federation.shape, output_size(federation), seed)
    if isinstance(model, nn.Module):
        original = copy.deepcopy(model)
        return lambda: copy.deepcopy(original)
    name = getattr(model, "__name__", type(model).__name__)
    make = UserCode(f"model {name}", model).wrap(model)
    return lambda: copy.deepcopy(seeded_module(make, "model=…", seed))


def _root_examples(experiment: Experiment, federation: Federation) -> Examples | None:
    """The server's root data: drawn from the clients' training data, or another data set."""
    if experiment.root is None:
        return None
    if isinstance(experiment.root, str):
        federation = make_federation(experiment.root, seed=experiment.seed)
    parts = [federation.train(client) for client in range(federation.clients)]
    x, y = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    if isinstance(experiment.root, str):
        return Examples(x, y)
    if experiment.root > len(y):
        raise ExperimentError(f"root={experiment.root}: there are only {len(y)} examples")
    drawn = stream(experiment.seed, "root").choice(len(y), experiment.root, replace=False)
    index = torch.from_numpy(drawn)
    return Examples(x[index], y[index])


def _try_training(setup: Setup, rng: np.random.Generator) -> None:
    """Try one training step and one evaluation, so that a model that cannot work fails now."""
    model = FlatModel(setup.build(), setup.device, setup.model_name)
    size = setup.experiment.batch_size
    out = torch.empty_like(model.vector)
    start = model.vector.clone()
    for examples in filter(None, (setup.federation.train(0), setup.root)):
        x, y = (part.to(setup.device) for part in draw_batches(examples, rng, 1, size))
        given = f"{size} examples of shape {tuple(x.shape[2:])}"
        try:
            with seeded(0), during(f"in a trial step with {given}"):
                local_update(model, start, x, y, setup.local_training, 1e-3, out)
        except Exception as error:
            if isinstance(error, UserCodeError) and error.file is not None:
                raise
            reason = f"{type(error).__name__}: {error}"
            raise ExperimentError(
                f"a trial step of {setup.model_name or 'the model'} with {given} failed: "
                f"{error.reason if isinstance(error, UserCodeError) else reason}"
            ) from error
    (x, y), _ = setup.test
    x, y = (part[:size].to(setup.device) for part in (x, y))
    with during("in a trial evaluation"):
        evaluate(model, start, x, y, setup.local_training)


def _try_attack(setup: Setup, rng: np.random.Generator) -> None:
    """Poison a Byzantine client's data and set the trigger, so that a wrong attack fails now."""
    _ = setup.attack.at(0), setup.attack.restraint
    for client in np.flatnonzero(setup.byzantine)[:1].tolist():
        setup.attack.poison(setup.federation.train(client), setup.federation.classes, rng)
    _ = setup.triggered
