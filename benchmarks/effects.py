"""A table of every attack against every rule: accuracy after training in percent.

python benchmarks/effects.py digits    50 clients, 10 Byzantine, 60 rounds, 3 seeds: a quarter hour
python benchmarks/effects.py femnist   150 writers, 15 Byzantine, 15 rounds, 1 seed: half an hour

`digits-iid` and `digits-skewed` divide the digits without and with strong heterogeneity. `--rules`
and `--seeds` choose what is run; finished runs are kept in a cache and not run again.
"""

import argparse
import datetime
import json
import statistics
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from fedro import Experiment, run

DIGITS_ATTACKS = [
    *("none", "sign_flip", "sign_flip(own=True)", "foe", "foe(tau=0.1)", "alie", "mimic"),
    *("label_flip", "gauss(std=1.0)", "zero", "nan", "inf", "huge", "min_max", "min_sum"),
    *("agr_tailored", "optimal_alie", "optimal_foe", "ambush", "worst"),
    *("silent", "silent_when_weak | foe", "backdoor", "backdoor | scaling"),
    "backdoor | constrain(alpha=0.5) | scaling",
    *("patient(until=30) | sign_flip", "sign_flip | noisy", "framing", "below_the_line"),
]
FEMNIST_ATTACKS = [
    *("none", "sign_flip", "foe", "alie", "mimic", "min_max"),
    *("optimal_alie", "optimal_foe", "worst", "backdoor | scaling"),
]
RULES = {
    "digits": [
        *("mean", "nnm | trimmed_mean", "median", "trimmed_mean", "krum", "geometric_median"),
    ],
    "femnist": ["mean", "nnm | trimmed_mean"],
}
DIGITS = {
    "dataset": "digits",
    "clients": 50,
    "model": "mlp(hidden=32)",
    "byzantine": 10,
    "rounds": 60,
    "batch_size": 16,
    "l2": 1e-4,
    "evaluate_every": 1000,
}
SETTINGS = {
    "digits": {**DIGITS, "partition": "dirichlet(alpha=1.0)"},
    "digits-iid": {**DIGITS, "partition": "iid"},
    "digits-skewed": {**DIGITS, "partition": "dirichlet(alpha=0.3)"},
    "femnist": {
        "dataset": "femnist",
        "clients": 150,
        "byzantine": 15,
        "sampled": 26,  # as in the paper, with the tolerance that is needed for 500 rounds
        "tolerated": 9,
        "rounds": 15,
        "l2": 1e-4,
        "evaluate_every": 1000,
    },
}
SEEDS = {"digits": 3, "femnist": 1}
Cell = tuple[str, str, str, int]


def kind(setting: str) -> str:
    """The data set of a setting."""
    return setting.partition("-")[0]


def attacks_of(setting: str) -> list[str]:
    return DIGITS_ATTACKS if kind(setting) == "digits" else FEMNIST_ATTACKS


def accuracy(cell: Cell) -> tuple[float, float | None]:
    """Return the final accuracy on honest clients' data, and that of the backdoor, if any."""
    setting, rule, attack, seed = cell
    *_, last = run(Experiment(**SETTINGS[setting], rule=rule, attack=attack, seed=seed))
    assert last.final is not None
    return last.final.accuracy or 0.0, last.final.backdoor


def measured(
    setting: str, rules: list[str], seeds: int, cache: Path
) -> dict[Cell, tuple[float, float | None]]:
    """Run all cells; those in the cache are not run again."""
    cells = [
        (setting, rule, attack, seed)
        for seed in range(seeds)
        for attack in attacks_of(setting)
        for rule in rules
    ]
    known = {}
    if cache.exists():
        known = {tuple(c): tuple(v) for c, v in map(json.loads, cache.read_text().splitlines())}
    todo = [cell for cell in cells if cell not in known]
    processes = 2 if kind(setting) == "digits" else 1
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for cell, value in zip(todo, pool.map(accuracy, todo), strict=True):
            known[cell] = value
            with cache.open("a") as file:
                print(json.dumps([cell, value]), file=file, flush=True)
            print(cell, value, flush=True)
    return {cell: known[cell] for cell in cells}


def table(
    setting: str, rules: list[str], seeds: int, accuracies: dict[Cell, tuple[float, float | None]]
) -> str:
    """Attack × rule: mean (and standard deviation) over seeds; the worst of a rule is bold."""
    cells = {}
    for attack in attacks_of(setting):
        for rule in rules:
            values = [accuracies[setting, rule, attack, seed][0] for seed in range(seeds)]
            cells[attack, rule] = statistics.mean(values), statistics.pstdev(values)
    worst = {rule: min(cells[a, rule][0] for a in attacks_of(setting)) for rule in rules}
    head = " | ".join(rule.replace("|", "\\|") for rule in rules)
    lines = [f"| attack | {head} |", "|---" * (1 + len(rules)) + "|"]
    for attack in attacks_of(setting):
        row = []
        for rule in rules:
            mean, deviation = cells[attack, rule]
            text = f"{100 * mean:.1f}" + (f" ± {100 * deviation:.1f}" if seeds > 1 else "")
            row.append(f"**{text}**" if mean == worst[rule] else text)
        lines.append("| " + " | ".join([attack.replace("|", "\\|"), *row]) + " |")
    return "\n".join(lines)


def backdoors(
    setting: str, rules: list[str], seeds: int, accuracies: dict[Cell, tuple[float, float | None]]
) -> str:
    """Return a sentence with the accuracy of each backdoor."""
    lines = []
    for attack in (attack for attack in attacks_of(setting) if "backdoor" in attack):
        parts = []
        for rule in rules:
            values = [accuracies[setting, rule, attack, seed][1] or 0.0 for seed in range(seeds)]
            parts.append(f"{rule} {statistics.mean(values):.3f}")
        lines.append(f"Accuracy of `{attack}`: {', '.join(parts)}.")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("setting", choices=SETTINGS)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--rules", nargs="+")
    parser.add_argument("--cache", type=Path, help="file with finished runs, one per line")
    options = parser.parse_args()
    seeds = options.seeds or SEEDS[kind(options.setting)]
    rules = options.rules or RULES[kind(options.setting)]
    cache = options.cache or Path("out") / f"effects-{options.setting}.jsonl"
    cache.parent.mkdir(exist_ok=True)
    accuracies = measured(options.setting, rules, seeds, cache)
    date = datetime.date.today().isoformat()
    print(f"\n{date}, accuracy in percent, {seeds} seeds (± deviation):\n")
    print(table(options.setting, rules, seeds, accuracies))
    print("\n" + backdoors(options.setting, rules, seeds, accuracies))


if __name__ == "__main__":
    main()
