"""A rule of your own: write it, attack it, train with it.

    python examples/own_rule.py

From a configuration or the command line it is `my_module:medoid`, like
`fedro kappa own_rule:medoid --sampled 11 --tolerated 2` in this folder.
"""

import numpy as np

import fedro
from fedro.rules import register


@register(cost="n²d", source="an example")
def medoid(rows):
    """The row with the least sum of distances to all others."""
    weights = np.zeros(rows.n)
    weights[np.argmin(np.sqrt(rows.sq).sum(axis=1))] = 1.0
    return rows.combine(weights)


def main() -> None:
    """Hold it against rules that come with fedro: the worst case, then a training run."""
    print("largest κ that a search of one second finds, 11 rows of which 2 are bad:")
    for text in ("medoid", "nnm | medoid", "trimmed_mean"):
        rule = fedro.parse_rule(text, b=2)
        found, proved = fedro.search_kappa(rule, n=11, b=2, seconds=1), rule.kappa(11)
        print(f"  {text:14} {found.kappa:6.2f}   proved: {proved and round(proved, 2)}")

    print("accuracy on digits after 20 rounds, 10 of 50 clients bad:")
    demo = fedro.read_experiment("demo", ["rounds=20", "attack=foe(tau=0.1)"])
    for text in ("mean", "medoid", "nnm | medoid", "nnm | trimmed_mean"):
        *_, done = fedro.run(demo.replace(rule=text))
        print(f"  {text:18} {done.final.accuracy:.1%}")


if __name__ == "__main__":
    main()
