"""One round of FedRo: sample, train, attack, aggregate, measure, evaluate."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedro.attacks import Defense, View
from fedro.data import Examples
from fedro.engine import Engine, Job
from fedro.measures import Score, aggregation_error, score
from fedro.rng import derived, stream
from fedro.server import Ids, State, rule_seed, sample, screen, starts_from_last, step
from fedro.setup import Setup, draw_batches


@dataclass
class Round:
    """What happened in a round. It never holds the matrix of updates."""

    round: int
    lr: float
    sampled: Ids  # client ids
    byzantine: Ids  # those among them who are bad
    state: State = field(repr=False)  # after the round
    missing: dict[int, str] = field(default_factory=dict)  # client id: reason
    rejected: dict[int, str] = field(default_factory=dict)
    void: str | None = None
    takeover: bool = False
    attack: str | None = None  # which it was, where several were tried
    train_loss: float | None = None
    error: float | None = None  # ‖A − mean of honest‖²
    variance: float | None = None  # of the honest updates
    kappa_seen: float | None = None
    kappa_proved: float | None = None
    score: Score | None = None  # of the model after the round, where it was evaluated
    final: Score | None = None  # of the run's output, after the last round
    seconds: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """As a line of rounds.jsonl."""
        line = {k: v for k, v in vars(self).items() if k not in ("state", "score", "final")}
        line["sampled"], line["byzantine"] = self.sampled.tolist(), self.byzantine.tolist()
        for key in ("missing", "rejected"):
            line[key] = {str(client): reason for client, reason in line[key].items()}
        for name in ("score", "final"):
            if (found := getattr(self, name)) is not None:
                line[name] = found._asdict()
        return line


def one_round(setup: Setup, engine: Engine, state: State) -> Round:
    """Sample, train, attack, aggregate, evaluate."""
    number, e = state.round, setup.experiment
    ids = sample(e.seed, number, setup.federation.clients, setup.sampled)
    bad = setup.byzantine[ids]
    done = Round(number, e.lr(number), ids, ids[bad], choose_iterate(setup, state))
    with watch(done, "train"):
        losses = engine.train(state.model, list(jobs(setup, number, ids, bad)), done.lr)
        done.train_loss = mean_of([losses[row] for row in np.flatnonzero(~bad).tolist()])
    with watch(done, "attack"):
        seized, silent = attack(setup, engine.updates, done, bad)
    with watch(done, "aggregate"):
        usable = screened(done, engine.updates, silent)
        after = aggregate(setup, engine.updates, done, usable)
    with watch(done, "measure"):
        honest = usable[~bad[usable]]
        if after is not None and honest.size:
            measure(setup, engine.updates, done, usable.size, honest, after)
    done.takeover = seized is not None
    if seized is not None:
        done.state = replace(done.state, model=seized)
    done.state = replace(done.state, round=number + 1)
    with watch(done, "evaluate"):
        evaluate(setup, engine, done)
    return done


def choose_iterate(setup: Setup, state: State) -> State:
    """Keep this model if it is the one that the paper's output draws."""
    e = setup.experiment
    if e.output == "random" and state.round == stream(e.seed, "output").integers(e.rounds):
        return replace(state, chosen=state.model)
    return state


def jobs(setup: Setup, number: int, ids: Ids, bad: NDArray[np.bool_]) -> Iterator[Job]:
    """The local training of a round: who trains, on what, with which dice."""
    e = setup.experiment
    for row, client in enumerate(ids.tolist()):
        if not bad[row] or setup.attack.trains:
            examples = partial(client_examples, setup, client, bool(bad[row]))
            job = make_job(setup, row, examples, "batches", number, client)
            yield job._replace(restraint=setup.attack.restraint) if bad[row] else job
    if setup.root is not None:
        root = setup.root
        yield make_job(setup, setup.sampled, lambda: root, "root batches", number, e.rounds)


def make_job(
    setup: Setup, row: int, examples: Callable[[], Examples], purpose: str, *keys: int
) -> Job:
    """A job that draws its batches when its turn comes."""
    e = setup.experiment

    def batches() -> tuple[Tensor, Tensor]:
        dice = stream(e.seed, purpose, *keys)
        return draw_batches(examples(), dice, e.local_steps, e.batch_size)

    return Job(row, batches, derived(e.seed, f"{purpose} layers", *keys))


def client_examples(setup: Setup, client: int, bad: bool) -> Examples:
    """What a client trains on: its own data, poisoned if it is bad."""
    examples = setup.federation.train(client)
    if not bad:
        return examples
    dice = stream(setup.experiment.seed, "poison", client)
    return setup.attack.poison(examples, setup.federation.classes, dice)


def attack(
    setup: Setup, updates: Tensor, done: Round, bad: NDArray[np.bool_]
) -> tuple[Tensor | None, Ids]:
    """Let the bad clients write their rows; the model they seize, if any, and who stays silent."""
    rows = np.flatnonzero(bad)
    if not rows.size:
        return None, rows
    e = setup.experiment
    sent = updates[: setup.sampled]
    view = View(
        updates=sent,
        honest=np.flatnonzero(~bad),
        byzantine=rows,
        ids=done.sampled,
        model=done.state.model,
        server_lr=e.server_lr,
        tolerated=setup.tolerated,
        round=done.round,
        rng=stream(e.seed, "attack", done.round),
        memory=dict(done.state.memory),
        trained=setup.flat.trained,
        aggregate=Defense(
            setup.rule,
            setup.tolerated,
            reference_of(setup, updates, done.state),
            rule_seed(e.seed, done.round),
            setup.flat.trained,
        ),
    )
    silent = rows[setup.attack.silent(view)]
    forged = setup.attack.forge(view)
    forged.write(sent, rows)
    done.attack = forged.name if silent.size < rows.size else None
    done.state = replace(done.state, memory=view.memory)
    return forged.model, silent


def screened(done: Round, updates: Tensor, silent: Ids) -> Ids:
    """The rows that can be used; the others are told with their reasons."""
    ids = done.sampled
    answered = np.setdiff1d(np.arange(ids.size), silent)
    refused = screen(updates, answered)
    done.missing = {int(ids[row]): "did not answer" for row in silent}
    done.rejected = {int(ids[row]): reason for row, reason in refused.items()}
    return np.array([row for row in answered.tolist() if row not in refused], dtype=np.int64)


def aggregate(setup: Setup, updates: Tensor, done: Round, usable: Ids) -> Tensor | None:
    """Step with what is usable; the aggregate, or None if the round is void."""
    e = setup.experiment
    result = step(
        done.state.model,
        updates[: setup.sampled],
        usable,
        setup.rule,
        tolerated=setup.tolerated,
        server_lr=e.server_lr,
        flat=setup.flat,
        reference=reference_of(setup, updates, done.state),
        seed=rule_seed(e.seed, done.round),
    )
    done.void = result.void
    done.state = replace(done.state, model=result.model)
    if starts_from_last(setup.rule) and result.aggregate is not None:
        done.state = replace(done.state, previous=result.aggregate)
    return result.aggregate


def reference_of(setup: Setup, updates: Tensor, state: State) -> Tensor | None:
    """What the rule compares with: its last output, or the update of the server's own data."""
    if starts_from_last(setup.rule):
        return state.previous
    return updates[setup.sampled, : setup.flat.trained] if setup.root is not None else None


def measure(
    setup: Setup, updates: Tensor, done: Round, received: int, honest: Ids, aggregate: Tensor
) -> None:
    """How far from the honest mean, and what was proved about that."""
    found = aggregation_error(updates[:, : setup.flat.trained], honest, aggregate)
    done.error, done.variance, done.kappa_seen = found.squared, found.variance, found.kappa
    done.kappa_proved = setup.rule.kappa(received, setup.tolerated)


def evaluate(setup: Setup, engine: Engine, done: Round) -> None:
    """On the honest clients' test data, when it is time."""
    e, last = setup.experiment, done.round + 1 == setup.experiment.rounds
    if last or (done.round + 1) % e.evaluate_every == 0:
        done.score = score_of(setup, engine, done.state.model)
    if last:
        chosen = done.state.chosen
        done.final = done.score if chosen is None else score_of(setup, engine, chosen)


def score_of(setup: Setup, engine: Engine, model: Tensor) -> Score:
    """A model's score on the honest clients' test data."""
    (x, y), owners = setup.test
    losses, right = engine.evaluate(model, x, y)
    hits = right.numpy() if setup.recipe.task == "classify" else None
    found = score(losses.double().numpy(), hits, owners)
    return found._replace(backdoor=backdoor_of(setup, engine, model))


def backdoor_of(setup: Setup, engine: Engine, model: Tensor) -> float | None:
    """How many of the examples with a trigger get the label that the attackers want."""
    if setup.triggered is None:
        return None
    losses, right = engine.evaluate(model, *setup.triggered)
    return float((right & losses.isfinite()).double().mean())  # no label comes of NaN


def mean_of(losses: list[float]) -> float | None:
    """The mean, where there is one."""
    return sum(losses) / len(losses) if losses else None


@contextmanager
def watch(done: Round, part: str) -> Iterator[None]:
    """Write down how long a part of the round took."""
    start = time.perf_counter()
    yield
    done.seconds[part] = time.perf_counter() - start
