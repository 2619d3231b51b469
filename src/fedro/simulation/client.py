"""What an honest client does: K steps of SGD from the server's model, and the change they made."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim.sgd import sgd

from fedro.models import FlatModel

Loss = Callable[[Tensor, Tensor], Tensor]


class Recipe(NamedTuple):
    """How clients train; the same for all of them in every round, but for the learning rate."""

    task: str = "classify"
    momentum: float = 0.0
    l2: float = 0.0
    precision: str = "float32"
    shift: Tensor = torch.tensor(0.0)
    scale: Tensor = torch.tensor(255.0)

    def inputs(self, x: Tensor) -> Tensor:
        """Bytes as floats, floats as they are; images with the channels last, which is faster."""
        if x.dtype == torch.uint8:
            x = (x.float() - self.shift) / self.scale
        return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Of each example: the negative log likelihood, or half the squared error."""
        if self.task == "classify":
            return -F.log_softmax(outputs.float(), 1).gather(1, y[:, None])[:, 0]
        if outputs.numel() != y.numel():
            raise ValueError(
                f"the model gives outputs of shape {tuple(outputs.shape)} for targets of shape "
                f"{tuple(y.shape)}: need as many numbers"
            )
        gaps = outputs.float().reshape(len(y), -1) - y.reshape(len(y), -1)
        return 0.5 * gaps.square().sum(1)

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """The precision of the forward pass; weights and updates stay float32."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(device.type, getattr(torch, self.precision))


def local_update(
    model: FlatModel,
    start: Tensor,
    x: Tensor,
    y: Tensor,
    recipe: Recipe,
    lr: float,
    out: Tensor,
    restraint: float = 0.0,
) -> float:
    """Take one step for each batch of x (K, B, …) and y (K, B); write the change to `out` (width,).

    Returns the mean loss over the steps. With a restraint ρ, which attackers may have, the steps
    are for (1−ρ)·loss + ρ·‖w − start‖ instead.
    """
    model.load(start)
    model.module.train()
    momenta: list[Tensor | None] = [None] * len(model.parameters)
    total = torch.zeros((), device=start.device)
    for inputs, targets in zip(x, y, strict=True):
        for parameter in model.parameters:
            parameter.grad = None
        with recipe.autocast(start.device):
            outputs = model.module(recipe.inputs(inputs))
        loss = recipe.losses(outputs, targets).mean()
        torch.autograd.backward(loss)
        if restraint:
            restrain(model, start, restraint)
        step(model.parameters, momenta, recipe, lr)
        total += loss.detach()
    torch.sub(model.vector, start, out=out)
    statistics = slice(model.trained, None)
    out[statistics][model.vector[statistics] == start[statistics]] = 0.0  # Inf − Inf, in a mask
    return float(total) / len(x)


@torch.no_grad()
def restrain(model: FlatModel, start: Tensor, restraint: float) -> None:
    """Turn the loss's gradient into that of (1−ρ)·loss + ρ·‖w − start‖, which is 0 at the start."""
    gap = model.vector[: model.trained] - start[: model.trained]
    parts = torch.split(pull(gap, restraint), [p.numel() for p in model.parameters])
    for parameter, part in zip(model.parameters, parts, strict=True):
        back = part.view_as(parameter)
        grad = parameter.grad
        parameter.grad = back if grad is None else grad.mul_(1 - restraint).add_(back)


def pull(gap: Tensor, restraint: Tensor | float) -> Tensor:
    """The gradient of ρ·‖w − start‖ for the gap w − start, in the last dimension."""
    length: Tensor = torch.linalg.vector_norm(gap, dim=-1, keepdim=True)
    return gap * (restraint / length.clamp_min(torch.finfo(gap.dtype).tiny))


@torch.no_grad()
def step(
    parameters: Sequence[Tensor], momenta: list[Tensor | None], recipe: Recipe, lr: float
) -> None:
    """One step of SGD by the function beneath `torch.optim.SGD`, to the same bits.

    To make the class itself imports a compiler, which takes two seconds in every process.
    """
    sgd(
        [*parameters],
        # what has no part in the loss still decays
        [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters],
        momenta,
        fused=True,
        lr=lr,
        momentum=recipe.momentum,
        weight_decay=recipe.l2,
        dampening=0.0,
        nesterov=False,
        maximize=False,
    )


@torch.no_grad()
def evaluate(
    model: FlatModel, weights: Tensor, x: Tensor, y: Tensor, recipe: Recipe, batch: int = 256
) -> tuple[Tensor, Tensor]:
    """The loss (m,) of each example, and whether it is classified rightly (m,)."""
    model.load(weights)
    model.module.eval()
    losses, right = [], []
    for inputs, targets in zip(torch.split(x, batch), torch.split(y, batch), strict=True):
        with recipe.autocast(weights.device):
            outputs = model.module(recipe.inputs(inputs))
        losses.append(recipe.losses(outputs, targets))
        correct = outputs.argmax(1) == targets if recipe.task == "classify" else losses[-1] < 0
        right.append(correct)
    return torch.cat(losses), torch.cat(right)
