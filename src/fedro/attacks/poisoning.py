"""Data that bad clients train on, honestly in all else."""

from typing import Any

import numpy as np

from fedro.attacks.table import poison


@poison(source="Allen-Zhu et al. 2020")
def label_flip(examples: Any, classes: int, rng: np.random.Generator) -> Any:
    """What training on wrong labels gives: y becomes C−1−y, of C classes."""
    if examples.y.is_floating_point():
        raise ValueError(f"label_flip needs class labels, whole numbers, not {examples.y.dtype}")
    return examples._replace(y=classes - 1 - examples.y)
