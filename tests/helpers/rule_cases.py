"""Rules that tests go through, and what their plain references give."""

from typing import Any

import numpy as np
import pytest

import oracle
from fedro.common.stages import Stage
from fedro.rules import RULES, Rule, parse_rule

FINAL = sorted(name for name, entry in RULES.items() if not entry.mixer)

MIXERS = sorted(name for name, entry in RULES.items() if entry.mixer)

OPTIONS: dict[str, dict[str, Any]] = {
    "norm_clip": {"limit": 2.0},
    "clip": {"limit": 2.0},
    "clip_step": {"factor": 2.0},
}

PIPELINES = [
    "nnm | trimmed_mean",
    "nnm | median",
    "nnm | meamed",
    "nnm | krum",
    "nnm | multi_krum",
    "nnm | geometric_median",
    "nnm | mda",
    "nnm | mva",
    "nnm | caf",
    "nnm | bulyan",
    "arc | trimmed_mean",
    "arc | nnm | median",
    "nnm | arc | trimmed_mean",
    "arc | geometric_median",
    "arc | bulyan",
    "nnm | nnm | median",
    "arc | nnm | nnm | median",
    "arc | nnm | arc | trimmed_mean",
    "clip(limit=2.0) | krum",
    "clip_step(factor=1.5) | nnm | trimmed_mean",
    "arc | nnm | centered_clipping",
    "krum(original=True)",
    "multi_krum(original=True)",
    "multi_krum(m=2)",
]

FAST = [*FINAL, *PIPELINES[:2]]

EVERY = [*FAST, *(pytest.param(text, marks=pytest.mark.slow) for text in PIPELINES[2:])]

SIZES = [(3, 1, 4), (7, 1, 5), (11, 2, 30), (9, 2, 300)]


def make(text: str, b: int) -> Rule:
    """A rule with whatever options it needs."""
    if text in OPTIONS:
        return Rule((Stage(text, OPTIONS[text]),), b)
    return parse_rule(text, b=b)


def usable(text: str, n: int, b: int) -> bool:
    rule = make(text, b)
    if "original=True" in text:
        return n >= 2 * b + 3
    return n > 2 * b and all(entry.valid(n, b) for entry in rule.entries)


def reference_for(rule: Rule, x: np.ndarray) -> dict[str, Any]:
    """A trusted vector for rules that need one."""
    wants = any(entry.reference != "no" for entry in rule.entries)
    return {"reference": x[: max(1, len(x) // 2)].mean(axis=0)} if wants else {}


def expected(rule: Rule, x: np.ndarray, b: int, call: dict[str, Any]) -> list[np.ndarray]:
    """All outputs that the references allow."""
    rows = np.asarray(x, dtype=np.float64)
    for stage in rule.stages[:-1]:
        also = {"reference": call["reference"]} if stage.name == "clip_step" else {}
        rows = oracle.MIXERS[stage.name](rows, b, **stage.options, **also)
    last, options = rule.stages[-1].name, dict(rule.stages[-1].options)
    if last in ("monna", "fltrust"):
        options["reference"] = call["reference"]
    if last == "centered_clipping":
        options["start"] = call["reference"]
    if last == "dnc":
        options["columns"] = [np.arange(x.shape[1])]
    outputs = [oracle.RULES[last](rows, b, **options)]
    if last in oracle.OUTPUTS:
        outputs += oracle.OUTPUTS[last](rows, b, **options)
    return outputs


def distance_to(outputs: list[np.ndarray], got: Any) -> float:
    return min(float(np.abs(np.asarray(got, dtype=np.float64) - one).max()) for one in outputs)
