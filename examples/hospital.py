"""A small federation: eight hospitals, everyone takes part in each round, one may be bad.

    python examples/hospital.py

Where everyone is sampled nothing is left to chance: b̂ is b, in every round. The data are real
(569 tumors, 30 measurements each), dealt to hospitals with uneven shares of the classes.
"""

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

import fedro
from fedro.data import from_clients

HOSPITALS, BAD, ROUNDS = 8, 1, 30


def hospitals(seed: int = 0):
    """For each hospital (x_train, y_train, x_test, y_test)."""
    x, y = load_breast_cancer(return_X_y=True)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    dice = np.random.default_rng(seed)
    shares = dice.dirichlet(np.full(HOSPITALS, 2.0), size=2)  # of each class
    home = np.array([dice.choice(HOSPITALS, p=shares[label]) for label in y])
    for hospital in range(HOSPITALS):
        mine = torch.from_numpy(dice.permutation(np.flatnonzero(home == hospital)))
        own_x, own_y = torch.tensor(x, dtype=torch.float32)[mine], torch.tensor(y)[mine]
        cut = max(1, 3 * len(mine) // 4)
        yield own_x[:cut], own_y[:cut], own_x[cut:], own_y[cut:]


plan = fedro.plan(clients=HOSPITALS, byzantine=BAD, rounds=ROUNDS, sampled=HOSPITALS)
print(f"sample {plan.sampled}, tolerate {plan.tolerated}: safe with {plan.confidence_achieved:.0%}")
print(f"κ = {plan.kappa:.3f}; should two be bad after all: {plan.if_more(2).confidence:.0%}")

federation = from_clients(hospitals())
print(federation.summary())
for attack in ("none", "sign_flip", "foe(tau=20.0)"):
    for rule in ("mean", "trimmed_mean"):
        experiment = fedro.Experiment(
            byzantine=BAD,
            sampled=plan.sampled,
            tolerated=plan.tolerated,
            rule=rule,
            attack=attack,
            rounds=ROUNDS,
            client_lr=0.05,
        )
        *_, done = fedro.run(experiment, federation=federation, model=nn.Linear(30, 2))
        print(f"{attack:14} {rule:14} {done.final.accuracy:.1%} right")
