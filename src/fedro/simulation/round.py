"""One simulated round of FedRo: sample, train, attack, aggregate, measure, evaluate."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedro.attacks import Attack, Defense, View
from fedro.common.streams import derived, stream
from fedro.data import Examples
from fedro.server import (
    Ids,
    Round,
    Score,
    State,
    aggregate,
    aggregation_error,
    rule_seed,
    sample,
    score_examples,
    screen,
    starts_from_last,
    timed,
)
from fedro.simulation.engines import Engine, Job
from fedro.simulation.setup import Setup, draw_batches


def simulate_round(setup: Setup, engine: Engine, state: State) -> Round:
    """Run the round that follows `state`."""
    number, e = state.round, setup.experiment
    ids = sample(e.seed, number, setup.federation.clients, setup.sampled)
    bad = setup.byzantine[ids]
    round_ = Round(number, e.lr(number), ids, ids[bad], choose_iterate(setup, state))
    with timed(round_, "train"):
        losses = engine.train(state.model, list(jobs(setup, number, ids, bad)), round_.lr)
        honest_losses = [losses[row] for row in np.flatnonzero(~bad).tolist()]
        round_.train_loss = mean_of(honest_losses)
        round_.diverged = sum(not math.isfinite(loss) for loss in honest_losses)
    with timed(round_, "attack"):
        new_model, silent = attack(setup, engine.updates, round_, bad)
    with timed(round_, "aggregate"):
        usable = usable_rows(round_, engine.updates, silent)
        aggregated = aggregate(
            round_,
            engine.updates[: setup.sampled],
            usable,
            setup.rule,
            tolerated=setup.tolerated,
            server_lr=e.server_lr,
            layout=setup.flat,
            seed=e.seed,
            reference=root_update(setup, engine.updates),
            exclude_suspects=e.exclude == "evidence",
            fdr=e.fdr,
        )
    with timed(round_, "measure"):
        honest = usable[~bad[usable]]
        if aggregated is not None and honest.size:
            measure(setup, engine.updates, round_, honest, aggregated)
    round_.takeover = new_model is not None
    if new_model is not None:
        round_.state = replace(round_.state, model=new_model)
    round_.state = replace(round_.state, round=number + 1)
    with timed(round_, "evaluate"):
        evaluate(setup, engine, round_)
    return round_


def choose_iterate(setup: Setup, state: State) -> State:
    """Keep this model if it is the random iterate that the run will return."""
    e = setup.experiment
    if e.output == "random" and state.round == stream(e.seed, "output").integers(e.rounds):
        return replace(state, chosen=state.model)
    return state


def jobs(setup: Setup, number: int, ids: Ids, bad: NDArray[np.bool_]) -> Iterator[Job]:
    """The local training of a round: one job for each client that trains, and one for the root."""
    attack = setup.attack.at(number)
    for row, client in enumerate(ids.tolist()):
        if not bad[row] or attack.trains:
            examples = partial(client_examples, setup, client, attack if bad[row] else None)
            job = make_job(setup, row, examples, "batches", number, client)
            yield job._replace(restraint=attack.restraint) if bad[row] else job
    if setup.root is not None:
        root = setup.root
        yield make_job(setup, setup.sampled, lambda: root, "root batches", number)


def make_job(
    setup: Setup, row: int, examples: Callable[[], Examples], purpose: str, *keys: int
) -> Job:
    """A job that draws its batches when it is run."""
    e = setup.experiment

    def batches() -> tuple[Tensor, Tensor]:
        rng = stream(e.seed, purpose, *keys)
        return draw_batches(examples(), rng, e.local_steps, e.batch_size)

    return Job(row, batches, derived(e.seed, f"{purpose} layers", *keys))


def client_examples(setup: Setup, client: int, attack: Attack | None) -> Examples:
    """The data that a client trains on; the attack, if it takes part in one, poisons them."""
    examples = setup.federation.train(client)
    if attack is None:
        return examples
    rng = stream(setup.experiment.seed, "poison", client)
    return attack.poison(examples, setup.federation.classes, rng)


def attack(
    setup: Setup, updates: Tensor, round_: Round, bad: NDArray[np.bool_]
) -> tuple[Tensor | None, Ids]:
    """Let the Byzantine clients write their rows.

    Returns the model that they put in the place of the server's (None without a takeover) and the
    rows of those that stay silent.
    """
    rows = np.flatnonzero(bad)
    if not rows.size:
        return None, rows
    e, state = setup.experiment, round_.state
    from_last = starts_from_last(setup.rule)
    sent = updates[: setup.sampled]
    view = View(
        updates=sent,
        honest=np.flatnonzero(~bad),
        byzantine=rows,
        ids=round_.sampled,
        model=state.model,
        server_lr=e.server_lr,
        tolerated=setup.tolerated,
        round=round_.round,
        rng=stream(e.seed, "attack", round_.round),
        memory=dict(state.memory),
        trained=setup.flat.trained,
        aggregate=Defense(
            setup.rule,
            setup.tolerated,
            state.previous if from_last else root_update(setup, updates),
            rule_seed(e.seed, round_.round),
            setup.flat.trained,
        ),
    )
    silent = rows[setup.attack.silent(view)]
    forged = setup.attack.forge(view)
    forged.write(sent, rows)
    round_.attack = forged.name if silent.size < rows.size else None
    round_.state = replace(state, memory=view.memory)
    return forged.model, silent


def usable_rows(round_: Round, updates: Tensor, silent: Ids) -> Ids:
    """The rows that pass the server's checks; records why the others do not."""
    ids = round_.sampled
    answered = np.setdiff1d(np.arange(ids.size), silent)
    refused = screen(updates, answered)
    round_.missing = {int(ids[row]): "did not answer" for row in silent}
    round_.rejected = {int(ids[row]): reason for row, reason in refused.items()}
    return np.array([row for row in answered.tolist() if row not in refused], dtype=np.int64)


def root_update(setup: Setup, updates: Tensor) -> Tensor | None:
    """The update trained on the server's own data, if it has any."""
    return updates[setup.sampled, : setup.flat.trained] if setup.root is not None else None


def measure(setup: Setup, updates: Tensor, round_: Round, honest: Ids, aggregated: Tensor) -> None:
    """Record how far the aggregate is from the honest mean."""
    error = aggregation_error(updates[:, : setup.flat.trained], honest, aggregated)
    round_.error, round_.variance, round_.kappa_seen = error.squared, error.variance, error.kappa


def evaluate(setup: Setup, engine: Engine, round_: Round) -> None:
    """Evaluate on the honest clients' test data, if this round is due for it."""
    e, last = setup.experiment, round_.round + 1 == setup.experiment.rounds
    if last or (round_.round + 1) % e.evaluate_every == 0:
        round_.score = score_model(setup, engine, round_.state.model)
    if last:
        chosen = round_.state.chosen
        round_.final = round_.score if chosen is None else score_model(setup, engine, chosen)


def score_model(setup: Setup, engine: Engine, model: Tensor) -> Score:
    """A model's score on the honest clients' test data."""
    (x, y), owners = setup.test
    losses, correct = engine.evaluate(model, x, y)
    classified = correct.numpy() if setup.local_training.task == "classify" else None
    score = score_examples(losses.double().numpy(), classified, owners)
    return score._replace(backdoor=backdoor_rate(setup, engine, model))


def backdoor_rate(setup: Setup, engine: Engine, model: Tensor) -> float | None:
    """The share of the triggered test examples that get the attackers' label."""
    if setup.triggered is None:
        return None
    losses, correct = engine.evaluate(model, *setup.triggered)
    return float((correct & losses.isfinite()).double().mean())  # NaN outputs have no label


def mean_of(losses: list[float]) -> float | None:
    """The mean of the losses, or None if there are none."""
    return sum(losses) / len(losses) if losses else None
