"""Eight hospitals that all take part in every round; one of them may be Byzantine.

    python examples/hospital.py

If every client is sampled in every round, nothing is left to chance: the server tolerates exactly
as many Byzantine clients as there are. The data is real (569 tumors, 30 measurements each); the
hospitals have uneven shares of the two classes.
"""

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

import fedro
from fedro.data import from_clients

HOSPITALS, BYZANTINE, ROUNDS = 8, 1, 30


def hospitals(seed: int = 0):
    """Yield (x_train, y_train, x_test, y_test) for each hospital."""
    x, y = load_breast_cancer(return_X_y=True)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(HOSPITALS, 2.0), size=2)  # of each class
    hospital_of = np.array([rng.choice(HOSPITALS, p=shares[label]) for label in y])
    for hospital in range(HOSPITALS):
        rows = torch.from_numpy(rng.permutation(np.flatnonzero(hospital_of == hospital)))
        own_x, own_y = torch.tensor(x, dtype=torch.float32)[rows], torch.tensor(y)[rows]
        cut = max(1, 3 * len(rows) // 4)
        yield own_x[:cut], own_y[:cut], own_x[cut:], own_y[cut:]


RULE = "trimmed_mean"

plan = fedro.plan(clients=HOSPITALS, byzantine=BYZANTINE, rounds=ROUNDS, rule=RULE)
print(f"sample {plan.sampled}, tolerate {plan.tolerated}: safe with {plan.confidence_achieved:.0%}")
print(f"κ = {plan.kappa:.3f}, proved for {plan.rule}")
print(f"if two were Byzantine after all: {plan.if_more(2).confidence:.0%}")

federation = from_clients(hospitals())
print(federation.summary())
for attack in ("none", "sign_flip", "foe(tau=20.0)"):
    for rule in ("mean", RULE):
        experiment = fedro.Experiment(
            byzantine=BYZANTINE,
            sampled=plan.sampled,
            tolerated=plan.tolerated,
            rule=rule,
            attack=attack,
            rounds=ROUNDS,
            client_lr=0.05,
        )
        *_, last = fedro.run(experiment, federation=federation, model=nn.Linear(30, 2))
        print(f"{attack:14} {rule:14} {last.final.accuracy:.1%} correct")
