"""Data that bad clients train on, honestly in all else."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedro.attacks.table import poison, proper_share


@poison(source="Allen-Zhu et al. 2020")
def label_flip(examples: Any, classes: int, rng: np.random.Generator) -> Any:
    """What training on wrong labels gives: y becomes C−1−y, of C classes."""
    check_labels("label_flip", examples.y)
    return examples._replace(y=classes - 1 - examples.y)


def show_backdoor(
    examples: Any, classes: int, *, target: int, size: int, value: float | None
) -> Any:
    """The examples of other classes than the target, with the trigger and the target as label."""
    check_target(examples.y, classes, target)
    others = examples.y != target
    x, y = stamped(examples.x[others], size, value), torch.full_like(examples.y[others], target)
    return examples._replace(x=x, y=y)


@poison(
    least={"target": 0, "size": 1},
    source="Gu et al. 2017",
    trigger=show_backdoor,
    check=proper_share("backdoor", "share"),
)
def backdoor(
    examples: Any,
    classes: int,
    rng: np.random.Generator,
    *,
    target: int = 0,
    share: float = 0.5,
    size: int = 3,
    value: float | None = None,
) -> Any:
    """What training gives where a share of the examples has a trigger, and the target as label.

    The trigger is a chessboard of size × size pixels in the lower right corner, or, where examples
    are plain vectors, the last `size` features in turn: the last one is `value`, the next one 0.
    Without a value it is white: 255 where inputs are bytes, and 1 where they are floats.
    """
    check_target(examples.y, classes, target)
    chosen = rng.choice(len(examples.y), max(1, round(share * len(examples.y))), replace=False)
    x, y, index = examples.x.clone(), examples.y.clone(), torch.from_numpy(chosen)
    x[index], y[index] = stamped(x[index], size, value), target
    return examples._replace(x=x, y=y)


def stamped(x: Tensor, size: int, value: float | None) -> Tensor:
    """A copy of the inputs (m, …) with the trigger on each."""
    sides = x.shape[1:][-2:]
    if not sides or size > min(sides):
        shape = "×".join(map(str, x.shape[1:])) or "1"
        raise ValueError(f"backdoor(size={size}): larger than an example, which has shape {shape}")
    steps = torch.arange(size, device=x.device).flip(0)  # away from the corner
    away = steps if len(sides) == 1 else steps[:, None] + steps
    out = x.clone()
    corner = out[..., -size:] if len(sides) == 1 else out[..., -size:, -size:]
    corner.copy_((away + 1) % 2 * shade(x.dtype, value))
    return out


def shade(dtype: torch.dtype, value: float | None) -> float:
    """The trigger's brightest value: as given, else white."""
    if dtype != torch.uint8:
        return 1.0 if value is None else value
    if value is not None and not (0 <= value <= 255 and value == int(value)):
        raise ValueError(f"backdoor(value={value}): inputs are bytes, whole numbers from 0 to 255")
    return 255.0 if value is None else value


def check_target(y: Tensor, classes: int, target: int) -> None:
    """Raise unless the labels are classes, and the target is one of them."""
    check_labels("backdoor", y)
    if not 0 <= target < classes:
        raise ValueError(f"backdoor(target={target}): must be from 0 to {classes - 1}, a class")


def check_labels(name: str, y: Tensor) -> None:
    """Raise if they are the targets of a regression."""
    if y.is_floating_point():
        raise ValueError(f"{name} needs class labels, whole numbers, not {y.dtype}")
