"""Training speed of fedro as ratios within one run: to its bare parts, and to plain PyTorch.

python benchmarks/train.py                  # FEMNIST (FEDRO_DATA or ../shared/data) and digits
python benchmarks/train.py --accuracy 5     # paired seeds: does the speed cost accuracy?
python benchmarks/train.py --engines workers ray    # FEMNIST: how long a round takes with each
"""

import argparse
import os
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from fedro.common.streams import stream
from fedro.models import build
from fedro.server import State, sample
from fedro.simulation.experiment import Experiment
from fedro.simulation.preparation import prepare
from fedro.simulation.round import jobs, simulate_round
from fedro.simulation.setup import draw_batches

BESIDE = Path(__file__).parents[2] / "shared" / "data"
FEMNIST = Experiment(
    dataset="femnist",
    clients=150,
    byzantine=15,
    attack="alie(z=1.5)",
    rule="nnm | trimmed_mean",
    sampled=26,
    tolerated=11,
    rounds=500,
    local_steps=10,
    batch_size=32,
    l2=1e-4,
)
DIGITS = Experiment(
    dataset="digits",
    clients=50,
    model="mlp(hidden=32)",
    rule="trimmed_mean",
    sampled=32,
    tolerated=10,
    rounds=500,
    local_steps=10,
    batch_size=16,
    l2=1e-4,
)


class Plain:
    """Plain PyTorch: a loop over clients in float32 with the default threads, and torch.sort."""

    def __init__(self, setup):
        self.setup = setup
        e, federation = setup.experiment, setup.federation
        self.net = build(setup.model_name, federation.shape, federation.classes, e.seed)
        self.x = torch.nn.utils.parameters_to_vector(self.net.parameters()).detach()

    def round(self, number):
        e, setup = self.setup.experiment, self.setup
        ids = sample(e.seed, number, setup.federation.clients, setup.sampled)
        honest = ids[~setup.byzantine[ids]]
        updates = torch.stack([self.update(number, int(client)) for client in honest])
        if len(honest) < len(ids):  # A Little Is Enough, as anyone would write it
            mean, std = updates.mean(0), updates.std(0, correction=0)
            forged = mean + 1.5 * std
            updates = torch.cat([updates, forged.expand(len(ids) - len(honest), -1)])
        self.x = self.x + trimmed_mean(nearest(updates, setup), setup.tolerated)

    def update(self, number, client):
        e = self.setup.experiment
        torch.nn.utils.vector_to_parameters(self.x.clone(), self.net.parameters())
        optimizer = torch.optim.SGD(self.net.parameters(), lr=e.lr(number), weight_decay=e.l2)
        rng = stream(e.seed, "batches", number, client)
        examples = self.setup.federation.train(client)
        for x, y in zip(*draw_batches(examples, rng, e.local_steps, e.batch_size), strict=True):
            optimizer.zero_grad()
            F.cross_entropy(self.net(x if x.is_floating_point() else x / 255), y).backward()
            optimizer.step()
        return torch.nn.utils.parameters_to_vector(self.net.parameters()).detach() - self.x


def nearest(updates, setup):
    """Nearest-neighbor mixing, where the rule has it."""
    if "nnm" not in str(setup.rule):
        return updates
    closest = torch.cdist(updates, updates).argsort(1)[:, : len(updates) - setup.tolerated]
    return torch.stack([updates[rows].mean(0) for rows in closest])


def trimmed_mean(updates, b):
    return torch.sort(updates, dim=0).values[b : len(updates) - b].mean(0)


def compare(name, experiment, rounds, plain_rounds):
    """Time whole rounds, their bare parts and plain PyTorch, in turns."""
    setup = prepare(experiment)
    plain = Plain(setup)
    taken = {"round": [], "steps": [], "rule": [], "plain": []}
    with setup.make_engine() as engine:
        state = simulate_round(setup, engine, State(0, setup.flat.vector.clone())).state  # warm
        for number in range(1, rounds + 1):
            bare, model = bare_jobs(setup, number), state.model
            with clock(taken["round"]), engine.threads():
                state = simulate_round(setup, engine, state).state
            with clock(taken["steps"]):
                engine.train(model, bare, experiment.lr(number))
            with clock(taken["rule"]):
                setup.rule(engine.updates[: setup.sampled], b=setup.tolerated)
            if number <= plain_rounds:
                with clock(taken["plain"]):
                    plain.round(number)
    print(
        f"\n{name}: engine {setup.engine_kind}, {setup.sampled} of {setup.flat.trained:,} numbers"
    )
    for kind, pick in (("best", min), ("median", np.median)):
        t = {key: pick(values) for key, values in taken.items()}
        print(
            f"  {kind:6} round {t['round']:7.4f} s; bare steps {t['steps']:7.4f} + rule "
            f"{t['rule']:6.4f}: {t['round'] / (t['steps'] + t['rule']):5.3f} of it (limit 1.10); "
            f"plain way {t['plain']:7.4f} s: {t['plain'] / t['round']:5.2f} times ours"
        )


@contextmanager
def clock(times):
    start = time.perf_counter()
    yield
    times.append(time.perf_counter() - start)


def bare_jobs(setup, number):
    """The round's jobs with their batches already drawn."""
    e = setup.experiment
    ids = sample(e.seed, number, setup.federation.clients, setup.sampled)
    bad = setup.byzantine[ids]
    drawn = []
    for job in jobs(setup, number, ids, bad):
        batches = job.batches()
        drawn.append(job._replace(batches=lambda batches=batches: batches))
    return drawn


def compare_engines(kinds, experiment, rounds):
    """Time rounds with several engines in turns; all must come to the same model."""
    setups = {kind: prepare(experiment.replace(engine=kind)) for kind in kinds}
    taken = {kind: [] for kind in kinds}
    with ExitStack() as stack:
        engines = {kind: stack.enter_context(setup.make_engine()) for kind, setup in setups.items()}
        states = {kind: State(0, setup.start.clone()) for kind, setup in setups.items()}
        for _ in range(rounds + 1):  # the first is a warm-up
            for kind, engine in engines.items():
                with clock(taken[kind]), engine.threads():
                    states[kind] = simulate_round(setups[kind], engine, states[kind]).state
    first = kinds[0]
    for kind, times in taken.items():
        best, median, base = min(times[1:]), np.median(times[1:]), min(taken[first][1:])
        same = torch.equal(states[kind].model, states[first].model)
        print(
            f"{kind:8} best {best:.4f} s, median {median:.4f} s a round: {best / base:.3f} times "
            f"{first}; {'the same' if same else 'other'} bits"
        )


def accuracy(setup, model):
    from fedro.simulation.round import score_model

    with setup.make_engine() as engine:
        return score_model(setup, engine, model).accuracy


def paired(experiment, seeds, rounds):
    """Accuracy of fedro and of plain PyTorch with the same random streams, and their difference."""
    gaps = []
    for seed in range(seeds):
        setup = prepare(experiment.replace(seed=seed, rounds=rounds, evaluate_every=10**6))
        plain = Plain(setup)
        state = State(0, setup.flat.vector.clone())
        start = time.perf_counter()
        with setup.make_engine() as engine:
            for _ in range(rounds):
                state = simulate_round(setup, engine, state).state
        ours = time.perf_counter() - start
        start = time.perf_counter()
        for number in range(rounds):
            plain.round(number)
        loop = time.perf_counter() - start
        pair = accuracy(setup, state.model), accuracy(setup, plain.x)
        gaps.append(pair[0] - pair[1])
        print(
            f"  seed {seed}: ours {pair[0]:.4f} in {ours:.1f} s, "
            f"plain {pair[1]:.4f} in {loop:.1f} s ({loop / ours:.2f} times)",
            flush=True,
        )
    if seeds > 1:
        half = 2.776 * np.std(gaps, ddof=1) / np.sqrt(seeds)  # Student's t for five
        print(f"  mean gap {np.mean(gaps):+.4f} ± {half:.4f} (95%, t with {seeds - 1} degrees)")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--accuracy", type=int, default=0, metavar="SEEDS")
    parser.add_argument("--engines", nargs="+", metavar="ENGINE", help="compare these engines")
    parser.add_argument("--full", action="store_true", help="one full pair of 60 rounds")
    arguments = parser.parse_args()
    if BESIDE.is_dir():
        os.environ.setdefault("FEDRO_DATA", str(BESIDE))
    if arguments.engines:
        compare_engines(arguments.engines, FEMNIST, arguments.rounds)
    elif arguments.full:
        print("one pair, the paper's FEMNIST setting, 60 rounds")
        paired(FEMNIST.replace(client_lr=[[0, 0.1], [36, 0.02], [48, 0.004], [55, 0.0008]]), 1, 60)
    elif arguments.accuracy:
        print("paired seeds, FEMNIST with 30 writers, 7 sampled, K = 5, 30 rounds")
        small = FEMNIST.replace(clients=30, byzantine=3, sampled=7, tolerated=3, local_steps=5)
        paired(small, arguments.accuracy, 30)
    else:
        compare("digits", DIGITS, 40, 40)
        if "FEDRO_DATA" in os.environ:
            compare("FEMNIST", FEMNIST, arguments.rounds, 2)


if __name__ == "__main__":
    main()
