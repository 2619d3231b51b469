"""Write a rule of your own, attack it, and train with it.

    python examples/own_rule.py

In a configuration or on the command line, name the rule with its module, as in
`fedro kappa own_rule:medoid --sampled 11 --tolerated 2` (run in this folder).
"""

import numpy as np

import fedro
from fedro.rules import mean, nnm, register, trimmed_mean


@register(cost="n²d", source="an example")
def medoid(rows):
    """The row with the least sum of distances to all others."""
    weights = np.zeros(rows.n)
    weights[np.argmin(np.sqrt(rows.sq).sum(axis=1))] = 1.0
    return rows.combine(weights)


def main() -> None:
    """Compare it with rules that come with fedro: in the worst case, and in training."""
    print("largest κ that a search of one second finds, 11 updates of which 2 are Byzantine:")
    for rule in (medoid(), nnm() | medoid(), trimmed_mean()):
        worst, proved = fedro.search_kappa(rule, n=11, b=2, seconds=1), rule.kappa(11, b=2)
        print(f"  {rule!s:14} {worst.kappa:6.2f}   proved: {proved and round(proved, 2)}")

    print("accuracy on digits after 20 rounds, 10 of 50 clients Byzantine:")
    demo = fedro.read_experiment("demo", ["rounds=20", "attack=foe(tau=0.1)"])
    for rule in (mean(), medoid(), nnm() | medoid(), nnm() | trimmed_mean()):
        *_, last = fedro.run(demo.replace(rule=rule))
        print(f"  {rule!s:18} {last.final.accuracy:.1%}")


if __name__ == "__main__":
    main()
