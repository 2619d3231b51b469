"""How well evidence finds Byzantine clients, and what leaving them out gains or costs.

python benchmarks/evidence.py digits     every attack, without and with exclusion: two hours
python benchmarks/evidence.py null       no attack: how often honest clients are flagged
python benchmarks/evidence.py femnist    some attacks on real FEMNIST ($FEDRO_DATA): an hour

`--seeds`, `--sampled` and `--attacks` choose what is run. Finished runs are kept in a cache and not
run again; `--finished` prints the table of those alone. `--write docs/results` writes it as CSV.
"""

import argparse
import csv
import datetime
import json
import math
import os
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from fedro import Experiment, prepare, run
from fedro.server.evidence import Evidence, RowFacts
from fedro.server.suspects import look_at, suspects

ATTACKS = [
    *("none", "sign_flip", "sign_flip(own=True)", "foe", "foe(tau=0.1)", "foe(tau=4.0)", "alie"),
    *("mimic", "label_flip", "gauss(std=1.0)", "zero", "huge", "min_max", "min_max(own=True)"),
    *("min_sum", "optimal_alie", "optimal_foe", "agr_tailored", "ambush"),
    *("backdoor", "backdoor | scaling", "silent"),
    *("patient(until=80) | sign_flip", "sign_flip | noisy(std=0.1)"),
    *("sign_flip(own=True) | noisy(std=0.1)", "framing"),
    *("below_the_line(keep=0.5)", "below_the_line(keep=0.3)"),
]
FEMNIST_ATTACKS = ["none", "sign_flip", "sign_flip(own=True)", "label_flip"]
ROBUST = "nnm | trimmed_mean"
VARIANTS = {  # the columns of accuracies: rule and exclusion
    "without": (ROBUST, "none"),
    "with": (ROBUST, "evidence"),
    "mean": ("mean", "none"),
}
RATES = (0.05, 0.2)  # of false discoveries
DIGITS = {
    "dataset": "digits",
    "clients": 50,
    "partition": "dirichlet(alpha=1.0)",
    "model": "mlp(hidden=32)",
    "byzantine": 10,
    "rounds": 240,
    "local_steps": 10,
    "batch_size": 16,
    "client_lr": 0.1,
    "l2": 1e-4,
    "evaluate_every": 1000,
}
TOLERATED = {30: 10, 17: 8, 26: 9}  # by the number of sampled clients
FEMNIST = {
    "dataset": "femnist",
    "clients": 150,
    "byzantine": 15,
    "local_steps": 10,
    "batch_size": 32,
    "l2": 1e-4,
    "evaluate_every": 1000,
}
PARTITIONS = ("iid", "dirichlet(alpha=1.0)", "dirichlet(alpha=0.1)")
Config = dict[str, Any]
Result = dict[str, Any]
Results = dict[str, Result]  # by the configuration as JSON


def schedule(rounds: int) -> list[list[float]]:
    """The paper's schedule of learning rates for 500 rounds, squeezed into so many."""
    steps = ((0.0, 0.1), (0.6, 0.02), (0.8, 0.004), (0.92, 0.0008))
    return [[round(share * rounds), lr] for share, lr in steps]


def with_sampled(base: Config, sampled: int, **keys: Any) -> Config:
    return {**base, "sampled": sampled, "tolerated": TOLERATED[sampled], **keys}


def femnist(rounds: int) -> Config:
    return {**FEMNIST, "rounds": rounds, "client_lr": schedule(rounds)}


def measure(config: Config) -> Result:
    """Run one experiment: its scores, and when each client was flagged."""
    if config["dataset"] == "digits":
        torch.set_num_threads(1)
    experiment = Experiment(**config)
    byzantine = prepare(experiment).byzantine.nonzero()[0].tolist()
    facts, first, last, excluded, void = [], {}, None, 0, 0
    for last in run(experiment):
        excluded += len(last.excluded)
        void += last.void is not None
        if last.evidence is not None:
            facts.append(last.evidence)
        for client in last.suspects:
            first.setdefault(client, last.round + 1)
    assert last is not None
    assert last.final is not None
    return {
        **last.final._asdict(),
        "byzantine": byzantine,
        "first": first,
        "end": suspects(last.state.evidence),
        "excluded": excluded / config["rounds"],
        "void": void,
        "ever": {str(rate): ever_flagged(facts, rate) for rate in RATES},
    }


def ever_flagged(facts: Sequence[RowFacts], fdr: float) -> list[int]:
    """The clients that are flagged after any round if the same facts are judged at this rate."""
    evidence, flagged = Evidence(), set[int]()
    for number, facts_of_round in enumerate(facts):
        evidence = look_at(evidence.add(facts_of_round), number, fdr)
        flagged.update(suspects(evidence))
    return sorted(flagged)


def key(config: Config) -> str:
    return json.dumps(config, sort_keys=True)


def measured(configs: Iterable[Config], cache: Path, jobs: int) -> Results:
    """The results of all configurations; those in the cache are not run again. 0 jobs run none."""
    results: Results = {}
    if cache.exists():
        results = dict(map(json.loads, cache.read_text().splitlines()))
    todo = [config for config in configs if key(config) not in results]
    if not todo or not jobs:
        return results
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(measure, config): config for config in todo}
        for finished in as_completed(running):
            config, result = running[finished], finished.result()
            results[key(config)] = result
            with cache.open("a") as file:
                print(json.dumps([key(config), result]), file=file, flush=True)
            names = (config.get(name) for name in ("sampled", "attack", "rule", "exclude", "seed"))
            print(*names, result["accuracy"], file=sys.stderr, flush=True)
    return json.loads(json.dumps(results))  # keys as they are read from the cache


def attack_configs(base: Config, sampled: int, attack: str, seed: int) -> dict[str, Config]:
    """The three runs of an attack: without and with exclusion, and plain averaging."""
    return {
        name: with_sampled(base, sampled, attack=attack, seed=seed, rule=rule, exclude=exclude)
        for name, (rule, exclude) in VARIANTS.items()
    }


def attack_rows(
    base: Config, sampled: Sequence[int], attacks: Sequence[str], seeds: int, results: Results
) -> Iterator[dict[str, Any]]:
    """A row of the table for each attack of which at least one seed is finished."""
    for size in sampled:
        for attack in attacks:
            runs = [
                {name: results[key(config)] for name, config in configs.items()}
                for configs in (attack_configs(base, size, attack, seed) for seed in range(seeds))
                if all(key(config) in results for config in configs.values())
            ]
            if runs:
                yield {"sampled": size, "attack": attack, **summary(runs)}


def summary(runs: Sequence[dict[str, Result]]) -> dict[str, Any]:
    """The columns of one attack, from the three runs of each seed."""
    row: dict[str, Any] = {"seeds": len(runs)}
    flags = [flag_counts(of_seed["with"]) for of_seed in runs]
    for name in ("bad_end", "bad_ever", "honest_end", "honest_ever"):
        row[name] = statistics.mean(counts[name] for counts in flags)
    row["half"] = statistics.median(counts["half"] for counts in flags)
    row["excluded"] = statistics.mean(of_seed["with"]["excluded"] for of_seed in runs)
    for part in ("accuracy", "worst", "backdoor"):
        for name in VARIANTS:
            values = [100 * (of_seed[name][part] or 0.0) for of_seed in runs]
            known = any(of_seed[name][part] is not None for of_seed in runs)
            row[f"{part}_{name}"] = statistics.mean(values) if known else None
            row[f"{part}_{name}_deviation"] = statistics.pstdev(values) if known else None
    return row


def flag_counts(result: Result) -> dict[str, float]:
    """How many Byzantine and honest clients were flagged, and after how many rounds half were."""
    byzantine = set(result["byzantine"])
    end, first = set(result["end"]), {int(c): when for c, when in result["first"].items()}
    times = sorted(when for client, when in first.items() if client in byzantine)
    half = math.ceil(len(byzantine) / 2)
    return {
        "bad_end": len(end & byzantine),
        "bad_ever": len(times),
        "honest_end": len(end - byzantine),
        "honest_ever": len(first) - len(times),
        "half": times[half - 1] if len(times) >= half > 0 else math.inf,
    }


def attack_table(rows: Sequence[dict[str, Any]]) -> str:
    """The table in Markdown. A row is marked where exclusion is over a point below the best."""
    columns = [
        *("n̂", "attack", "seeds", "flagged bad", "flagged honest (ever)", "half after"),
        *("without", "with exclusion", "plain averaging"),
        *("worst tenth without", "with", "plain"),
    ]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for row in rows:
        half = "never" if math.isinf(row["half"]) else f"{row['half']:.0f}"
        cells = [
            str(row["sampled"]),
            row["attack"].replace("|", "\\|"),
            str(row["seeds"]),
            f"{row['bad_end']:.1f}",
            f"{row['honest_end']:.1f} ({row['honest_ever']:.1f})",
            half,
            *(percent(row, f"accuracy_{name}") for name in VARIANTS),
            *(percent(row, f"worst_{name}") for name in VARIANTS),
        ]
        if shortfall(row) > 1:
            cells[7] = f"**{cells[7]}**"
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def shortfall(row: dict[str, Any]) -> float:
    """By how many points exclusion is below the better of the two others."""
    best = max(row["accuracy_without"], row["accuracy_mean"])
    return float(best - row["accuracy_with"])


def percent(row: dict[str, Any], name: str) -> str:
    text = f"{row[name]:.1f}"
    return text if row["seeds"] == 1 else f"{text} ± {row[f'{name}_deviation']:.1f}"


def backdoors(rows: Sequence[dict[str, Any]]) -> str:
    """One sentence for each backdoor: how often it works."""
    return "\n".join(
        f"Accuracy of `{row['attack']}` at n̂ = {row['sampled']}: "
        + ", ".join(f"{name} {row[f'backdoor_{name}']:.1f}" for name in VARIANTS)
        for row in rows
        if row["backdoor_with"] is not None
    )


def null_settings(sampled: int, rounds: int) -> dict[str, Config]:
    """Federations without Byzantine clients, by name."""
    honest: Config = {"byzantine": 0, "attack": "none", "rule": ROBUST, "exclude": "none"}
    settings = {
        f"digits, {partition}": with_sampled(DIGITS, sampled, partition=partition, **honest)
        for partition in PARTITIONS
    }
    if os.environ.get("FEDRO_DATA"):
        settings["femnist, by writer"] = with_sampled(femnist(rounds), 26, **honest)
    return settings


def null_rows(
    settings: dict[str, Config], seeds: dict[str, int], results: Results
) -> Iterator[dict[str, Any]]:
    """For each federation and rate: in how many runs and how many honest clients are flagged."""
    for name, config in settings.items():
        keys = [key({**config, "seed": seed}) for seed in range(seeds[config["dataset"]])]
        runs = [results[k] for k in keys if k in results]
        for rate in RATES if runs else ():
            counts = [len(result["ever"][str(rate)]) for result in runs]
            yield {
                "setting": name,
                "fdr": rate,
                "runs": len(runs),
                "runs_with_flags": sum(count > 0 for count in counts),
                "share_of_runs": sum(count > 0 for count in counts) / len(runs),
                "clients_flagged": sum(counts),
                "share_of_clients": sum(counts) / len(runs) / config["clients"],
            }


def null_table(rows: Sequence[dict[str, Any]]) -> str:
    head = [
        "| setting | fdr | runs | runs with a flag | honest clients ever flagged |",
        "|---|---|---|---|---|",
    ]
    lines = [
        f"| {row['setting']} | {row['fdr']} | {row['runs']} | {row['runs_with_flags']} "
        f"({row['share_of_runs']:.0%}) | {row['clients_flagged']} ({row['share_of_clients']:.2%}) |"
        for row in rows
    ]
    return "\n".join(head + lines)


def write_csv(rows: Sequence[dict[str, Any]], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            values = {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}
            writer.writerow({k: "never" if v == math.inf else v for k, v in values.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("setting", choices=("digits", "null", "femnist"))
    parser.add_argument("--seeds", type=int, help="default: 5 (digits), 20 (null), 1 (femnist)")
    parser.add_argument("--femnist-seeds", type=int, default=1, help="of `null`")
    parser.add_argument("--sampled", type=int, nargs="+", choices=TOLERATED)
    parser.add_argument("--attacks", nargs="+")
    parser.add_argument("--rounds", type=int, default=60, help="on FEMNIST")
    parser.add_argument("--jobs", type=int, help="processes; default: 2, on FEMNIST 1")
    parser.add_argument("--cache", type=Path, default=Path("out") / "evidence.jsonl")
    parser.add_argument("--finished", action="store_true", help="run nothing; use the cache")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write CSV files there")
    options = parser.parse_args()
    options.cache.parent.mkdir(exist_ok=True)
    jobs = 0 if options.finished else options.jobs or (1 if options.setting == "femnist" else 2)
    if options.setting == "null":
        settings = null_settings((options.sampled or [30])[0], options.rounds)
        seeds = {"digits": options.seeds or 20, "femnist": options.femnist_seeds}
        for dataset, processes in (("digits", jobs), ("femnist", min(jobs, 1))):
            configs = [
                {**config, "seed": seed}
                for seed in range(seeds[dataset])
                for config in settings.values()
                if config["dataset"] == dataset
            ]
            results = measured(configs, options.cache, processes)
        rows = list(null_rows(settings, seeds, results))
        text = null_table(rows)
    else:
        digits = options.setting == "digits"
        base = DIGITS if digits else femnist(options.rounds)
        sampled = options.sampled or ([30, 17] if digits else [26])
        attacks = options.attacks or (ATTACKS if digits else FEMNIST_ATTACKS)
        seed_count = options.seeds or (5 if digits else 1)
        configs = [
            config
            for size in sampled
            for seed in range(seed_count)
            for attack in attacks
            for config in attack_configs(base, size, attack, seed).values()
        ]
        results = measured(configs, options.cache, jobs)
        rows = list(attack_rows(base, sampled, attacks, seed_count, results))
        text = attack_table(rows) + "\n\n" + backdoors(rows)
    print(f"\n{datetime.date.today().isoformat()}, percent, ± deviation over seeds:\n\n{text}")
    if options.write and rows:
        write_csv(rows, options.write / f"evidence-{options.setting}.csv")


if __name__ == "__main__":
    main()
