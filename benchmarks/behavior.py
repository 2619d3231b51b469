"""Print a table of how fedro, ByzFL, ByzPy and Flower behave on the same hostile inputs.

    python benchmarks/behavior.py

docs/comparison.md contains the table, and a test compares the two.
"""

import logging
import os
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

os.environ["FLWR_TELEMETRY_ENABLED"] = os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/helpers"))

import numpy as np
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy
from flwr.supercore.task_identity import TaskIdentity

from fedro.common.text import markdown_table
from fedro.rules import parse_rule
from peers import byzfl, byzfl_rule, byzpy_rule

TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # as in a server app
logging.getLogger("flwr").setLevel(logging.CRITICAL)
Rows = np.ndarray
RULES = ["median", "trimmed_mean", "krum", "multi_krum", "geometric_median", "meamed"]


def ours(name: str, b: int) -> Callable[[Rows], Rows]:
    return lambda x: np.asarray(parse_rule(name, b=b)(x), dtype=np.float64)


def flower(name: str, b: int, sizes: list[float] | None = None) -> Callable[[Rows], Rows]:
    """One of Flower's strategies as a rule."""
    made = {
        "median": strategy.FedMedian,
        "trimmed_mean": lambda: strategy.FedTrimmedAvg(beta=b / 11),
        "krum": lambda: strategy.Krum(num_malicious_nodes=b),
        "multi_krum": lambda: strategy.MultiKrum(num_malicious_nodes=b, num_nodes_to_select=11 - b),
    }[name]()

    def call(x: Rows) -> Rows:
        replies = []
        for node, (row, size) in enumerate(zip(x, sizes or [10.0] * len(x), strict=True), start=1):
            records = {
                "arrays": ArrayRecord([row]),
                "metrics": MetricRecord({"num-examples": size}),
            }
            message = Message(RecordDict(records), dst_node_id=node, message_type="train")
            replies.append(message)
        arrays, _ = made.aggregate_train(1, replies)
        if arrays is None:
            raise ValueError("no result")
        return np.asarray(arrays.to_numpy_ndarrays()[0], dtype=np.float64)

    return call


LIBRARIES: dict[str, Callable[..., Callable[[Rows], Rows]]] = {
    "fedro": ours,
    "ByzFL": byzfl_rule,
    "ByzPy": byzpy_rule,
    "Flower": flower,
}


def honest(n: int, d: int, seed: int = 0) -> Rows:
    return 1.0 + 0.1 * np.random.default_rng(seed).standard_normal((n, d))


def not_a_number(library: str) -> str:
    """2 of 11 updates are NaN: rules whose aggregate is not finite"""
    x = honest(11, 20)
    x[:2] = np.nan
    failed, tried = [], 0
    for name in RULES:
        try:
            tried += 1
            if not np.isfinite(LIBRARIES[library](name, 2)(x)).all():
                failed.append(name)
        except KeyError:
            tried -= 1  # it has no such rule
        except Exception as error:
            failed.append(f"{name} ({type(error).__name__})")
    return f"{len(failed)} of {tried}" + (f": {', '.join(failed)}" if failed else "")


def too_many(library: str) -> str:
    """Krum with b = 4 and 7 updates, of which 4 are Byzantine"""
    x = honest(7, 5)
    x[:4] = 1000.0
    try:
        answer = LIBRARIES[library]("krum", 4)(x)
    except Exception as error:
        return f"refused ({type(error).__name__})"
    return "the attackers' row" if answer.mean() > 500 else "an honest row"


def near_rows(library: str) -> str:
    """Krum, 30 float32 updates equal to four digits, 4 Byzantine: Byzantine ones in 15 choices"""
    picked = [0, 0]
    for seed in range(15):
        rng = np.random.default_rng(seed)
        center = rng.standard_normal(1000)
        x = (center + 1e-5 * rng.standard_normal((30, 1000))).astype(np.float32)
        x[:4] = (center + 1e-4 * rng.standard_normal((4, 1000))).astype(np.float32)
        for kind, given in enumerate((x, torch.from_numpy(x))[: 1 + (library == "ByzFL")]):
            answer = LIBRARIES[library]("krum", 4)(given)
            picked[kind] += any(np.allclose(answer, row, atol=1e-9) for row in x[:4])
    arrays, tensors = ("some" if count else "none" for count in picked)  # how many, the processor
    return f"{tensors} as tensors, {arrays} as arrays" if library == "ByzFL" else arrays


def misspelt(library: str) -> str:
    """A misspelled option for the number of Byzantine clients"""
    x = np.array([[0.0]] * 4 + [[100.0]])
    try:
        if library == "ByzFL":
            framework = byzfl("fed_framework.robust_aggregator")
            rule = framework.RobustAggregator({"name": "TrMean", "parameters": {"n_byz": 1}})
            answer = float(rule.aggregate_vectors(x)[0])
        elif library == "fedro":
            answer = float(parse_rule("trimmed_mean(n_byz=1)")(x)[0])
        elif library == "ByzPy":
            answer = float(byzpy_rule("trimmed_mean", 1, n_byz=1)(x)[0])
        else:
            answer = float(bool(strategy.Krum(n_byz=1)))
    except Exception as error:
        return f"refused ({type(error).__name__})"
    return "plain averaging" if answer == 20 else f"{answer:g}"


def sizes(library: str) -> str:
    """Multi-Krum, and a Byzantine client near the others claims 10¹² examples"""
    x = honest(11, 20)
    x[0] = x[1:].mean(axis=0) + 0.01
    claimed = [1e12] + [10.0] * 10
    if library == "fedro":
        try:
            parse_rule("multi_krum", b=2)(x, weights=claimed)
        except ValueError:
            return "refused (ValueError)"
    if library != "Flower":
        return "takes no sizes"
    answer = flower("multi_krum", 2, claimed)(x)
    return "the aggregate is that client's row" if np.allclose(answer, x[0]) else "bounded"


def overwritten(library: str) -> str:
    """The caller's array after ARC or clipping"""
    x = np.vstack([honest(9, 5), 50 * honest(2, 5)])
    before = x.copy()
    if library == "fedro":
        parse_rule("arc | mean", b=2)(x)
    elif library == "ByzFL":
        byzfl().ARC(f=2)(x)
    elif library == "ByzPy":
        from byzpy.pre_aggregators import ARC

        rows = [torch.tensor(row) for row in x]
        ARC(f=2).pre_aggregate(rows)
        x = np.stack([row.numpy() for row in rows])
    else:
        return "has none"
    return "unchanged" if np.array_equal(x, before) else "overwritten"


def converged(library: str) -> str:
    """Geometric median, 3 of 11 updates far off: distance from the honest mean"""
    if library == "Flower":
        return "has none"
    rng = np.random.default_rng(0)
    x = rng.standard_normal((11, 50)) + 10
    x[:3] = -100.0
    answer = LIBRARIES[library]("geometric_median", 3)(x)
    return f"{np.linalg.norm(answer - x[3:].mean(axis=0)):.2f}"


CASES = [not_a_number, too_many, near_rows, misspelt, sizes, overwritten, converged]


def main() -> None:
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    versions = {"ByzFL": "byzfl", "ByzPy": "byzpy", "Flower": "flwr", "fedro": "fedro"}
    header = ["", *(f"{name} {version(versions[name])}" for name in LIBRARIES)]
    rows = [[case.__doc__ or "", *(case(name) for name in LIBRARIES)] for case in CASES]
    print(markdown_table(header, rows))


if __name__ == "__main__":
    main()
