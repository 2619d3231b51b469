"""Attacks on local training: poisoned data, backdoors, and training near the server's model."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedro.attacks.registration import poison, train
from fedro.common.options import AT_LEAST_ONE, AT_LEAST_ZERO, PROPER_SHARE


@poison(source="Allen-Zhu et al. 2020")
def label_flip(examples: Any, classes: int, rng: np.random.Generator) -> Any:
    """Train on wrong labels: with C classes, y becomes C−1−y.

    Example:
        >>> sorted(label_flip().hooks)
        ['poison']
    """
    _check_labels("label_flip", examples.y)
    return examples._replace(y=classes - 1 - examples.y)


def show_backdoor(
    examples: Any, classes: int, *, target: int, size: int, value: float | None
) -> Any:
    """Return the examples of other classes than the target, with the trigger and its label."""
    _check_target(examples.y, classes, target)
    others = examples.y != target
    x = _stamped(examples.x[others], size, value)
    return examples._replace(x=x, y=torch.full_like(examples.y[others], target))


@poison(
    ranges={"target": AT_LEAST_ZERO, "size": AT_LEAST_ONE, "share": PROPER_SHARE},
    source="Gu et al. 2017",
    trigger=show_backdoor,
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
    """Train on data in which a share of the examples carries a trigger and the label `target`.

    The trigger is a checkerboard of size × size pixels in the lower right corner. Where examples
    are plain vectors, it is the last `size` features: the last one is `value`, the one before
    it 0, and so on.

    Args:
        target: The class that the model shall predict for inputs with the trigger.
        share: Share of the examples that get the trigger, more than 0 and at most 1.
        size: Side of the checkerboard, at least 1.
        value: Value of its bright fields. By default 255 where inputs are bytes, 1 where they are
            floats.

    Example:
        >>> str(backdoor(target=3, share=0.2))
        'backdoor(target=3, share=0.2)'
    """
    _check_target(examples.y, classes, target)
    chosen = rng.choice(len(examples.y), max(1, round(share * len(examples.y))), replace=False)
    x, y, index = examples.x.clone(), examples.y.clone(), torch.from_numpy(chosen)
    x[index], y[index] = _stamped(x[index], size, value), target
    return examples._replace(x=x, y=y)


@train(ranges={"alpha": PROPER_SHARE}, source="Bagdasaryan et al. 2020")
def constrain(*, alpha: float) -> float:
    """Minimize alpha·loss + (1−alpha)·‖w − the server's model‖ in local training.

    This is the first half of "constrain and scale": the update is shorter and passes checks of
    lengths and distances.

    Args:
        alpha: Weight of the loss, more than 0 and at most 1.

    Example:
        >>> constrain(alpha=0.75).restraint
        0.25
    """
    return 1 - alpha


def _stamped(x: Tensor, size: int, value: float | None) -> Tensor:
    """Return a copy of the inputs (m, …) with the trigger on each."""
    sides = x.shape[1:][-2:]
    if not sides or size > min(sides):
        shape = "×".join(map(str, x.shape[1:])) or "1"
        raise ValueError(f"backdoor(size={size}): larger than an example, which has shape {shape}")
    steps = torch.arange(size, device=x.device).flip(0)  # away from the corner
    away = steps if len(sides) == 1 else steps[:, None] + steps
    out = x.clone()
    corner = out[..., -size:] if len(sides) == 1 else out[..., -size:, -size:]
    corner.copy_((away + 1) % 2 * _brightness(x.dtype, value))
    return out


def _brightness(dtype: torch.dtype, value: float | None) -> float:
    """Return the value of the trigger's bright fields: as given, else white."""
    if dtype != torch.uint8:
        return 1.0 if value is None else value
    if value is not None and not (0 <= value <= 255 and value == int(value)):
        raise ValueError(
            f"backdoor(value={value}): inputs are bytes, so it must be a whole number from 0 to 255"
        )
    return 255.0 if value is None else value


def _check_target(y: Tensor, classes: int, target: int) -> None:
    """Raise unless the labels are classes, and the target is one of them."""
    _check_labels("backdoor", y)
    if not 0 <= target < classes:
        raise ValueError(f"backdoor(target={target}): must be from 0 to {classes - 1}, a class")


def _check_labels(name: str, y: Tensor) -> None:
    """Raise if the labels are targets of a regression."""
    if y.is_floating_point():
        raise ValueError(f"{name} needs class labels, whole numbers, not {y.dtype}")
