"""What the server does, in a simulation and in a deployment alike.

Every round, the server samples clients (`sample`), checks what they send (`screen`) and takes one
robust step (`aggregate`). `State` is what it remembers, `Round` what it reports, and `summarize`
reduces a whole run to a few numbers.
"""

from fedro.server.diagnosis import diagnose, divergence
from fedro.server.evidence import Evidence, RowFacts
from fedro.server.scores import AggregationError, Ids, Score, aggregation_error, score_examples
from fedro.server.settings import TrainingSettings
from fedro.server.state import Round, State, timed
from fedro.server.step import (
    Layout,
    Step,
    aggregate,
    is_robust,
    rule_seed,
    sample,
    screen,
    starts_from_last,
    step,
)
from fedro.server.summary import summarize
from fedro.server.suspects import DEFAULT_FDR, Verdict, judge, look_at, suspects

__all__ = [
    "DEFAULT_FDR",
    "AggregationError",
    "Evidence",
    "Ids",
    "Layout",
    "Round",
    "RowFacts",
    "Score",
    "State",
    "Step",
    "TrainingSettings",
    "Verdict",
    "aggregate",
    "aggregation_error",
    "diagnose",
    "divergence",
    "is_robust",
    "judge",
    "look_at",
    "rule_seed",
    "sample",
    "score_examples",
    "screen",
    "starts_from_last",
    "step",
    "summarize",
    "suspects",
    "timed",
]
