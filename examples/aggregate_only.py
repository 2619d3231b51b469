"""Only the aggregation: replace the mean in a training loop that you already have.

    python examples/aggregate_only.py

A rule takes a matrix with one update in each row and gives one update. Nothing else of fedro is
needed: no experiment, no plan, no run folder.
"""

import torch

import fedro

torch.manual_seed(0)
clients, bad, parameters = 20, 4, 10_000
truth = torch.randn(parameters)
updates = truth + torch.randn(clients, parameters)  # honest clients: the truth and some noise
updates[0] = float("nan")  # a client whose training diverged
updates[1] = 1e15
updates[2:bad] = -3 * truth  # two that agree on the opposite

print(f"{'rule':20} {'κ proved':>9}   distance from the truth")
for text in ("mean", "median", "trimmed_mean", "nnm | trimmed_mean", "geometric_median"):
    rule = fedro.parse_rule(text, b=bad)
    kappa, error = rule.kappa(clients), (rule(updates) - truth).norm()
    print(f"{text:20} {'none' if kappa is None else f'{kappa:.2f}':>9}   {error:.3g}")

best = (updates[bad:].mean(dim=0) - truth).norm()
print(f"{'(the honest mean)':20} {'':9}   {best:.3g}")
