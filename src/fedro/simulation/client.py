"""Local training: K steps of SGD from the server's model, and the update that they make."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim.sgd import sgd

from fedro.models import FlatModel

Loss = Callable[[Tensor, Tensor], Tensor]


class LocalTraining(NamedTuple):
    """The configuration of local training that all clients share in every round.

    The learning rate is not part of it, because it may change from round to round.
    """

    task: str = "classify"
    momentum: float = 0.0
    l2: float = 0.0
    precision: str = "float32"
    shift: Tensor = torch.tensor(0.0)
    scale: Tensor = torch.tensor(255.0)

    def inputs(self, x: Tensor) -> Tensor:
        """Scale bytes to floats and store images with channels last, which is faster."""
        if x.dtype == torch.uint8:
            x = (x.float() - self.shift) / self.scale
        return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each example: negative log likelihood, or half the squared error."""
        if self.task == "classify":
            return -F.log_softmax(outputs.float(), 1).gather(1, y[:, None])[:, 0]
        if outputs.numel() != y.numel():
            raise ValueError(
                f"the model gives outputs of shape {tuple(outputs.shape)} for targets of shape "
                f"{tuple(y.shape)}: both must hold the same number of values"
            )
        residuals = outputs.float().reshape(len(y), -1) - y.reshape(len(y), -1)
        return 0.5 * residuals.square().sum(1)

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
    training: LocalTraining,
    lr: float,
    out: Tensor,
    restraint: float = 0.0,
) -> float:
    """Take one step for each batch of x (K, B, …) and y (K, B); write the update to `out` (width,).

    Returns the mean loss over the steps. With a restraint ρ, which only attacks use, the steps
    minimize (1−ρ)·loss + ρ·‖w − start‖ instead.
    """
    model.load(start)
    model.module.train()
    momenta: list[Tensor | None] = [None] * len(model.parameters)
    total = torch.zeros((), device=start.device)
    for inputs, targets in zip(x, y, strict=True):
        for parameter in model.parameters:
            parameter.grad = None
        with model.user_code, training.autocast(start.device):
            outputs = model.module(training.inputs(inputs))
        loss = training.losses(outputs, targets).mean()
        with model.user_code:
            torch.autograd.backward(loss)
        if restraint:
            restrain(model, start, restraint)
        sgd_step(model.parameters, momenta, training, lr)
        total += loss.detach()
    torch.sub(model.vector, start, out=out)
    # Inf − Inf in a constant buffer, such as an attention mask, would make the update NaN.
    statistics = slice(model.trained, None)
    out[statistics][model.vector[statistics] == start[statistics]] = 0.0
    return float(total) / len(x)


@torch.no_grad()
def restrain(model: FlatModel, start: Tensor, restraint: float) -> None:
    """Turn the gradient of the loss into that of (1−ρ)·loss + ρ·‖w − start‖ (0 at the start)."""
    change = model.vector[: model.trained] - start[: model.trained]
    sizes = [parameter.numel() for parameter in model.parameters]
    penalties = torch.split(restraint_gradient(change, restraint), sizes)
    for parameter, penalty in zip(model.parameters, penalties, strict=True):
        shaped = penalty.view_as(parameter)
        grad = parameter.grad
        parameter.grad = shaped if grad is None else grad.mul_(1 - restraint).add_(shaped)


def restraint_gradient(change: Tensor, restraint: Tensor | float) -> Tensor:
    """The gradient of ρ·‖w − start‖ for the change w − start, along the last dimension."""
    length: Tensor = torch.linalg.vector_norm(change, dim=-1, keepdim=True)
    return change * (restraint / length.clamp_min(torch.finfo(change.dtype).tiny))


@torch.no_grad()
def sgd_step(
    parameters: Sequence[Tensor], momenta: list[Tensor | None], training: LocalTraining, lr: float
) -> None:
    """Take one SGD step with the function beneath `torch.optim.SGD`, which gives the same bits.

    Creating the optimizer object would import a compiler, which costs every process two seconds.
    """
    sgd(
        [*parameters],
        # Parameters without a gradient still decay.
        [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters],
        momenta,
        fused=True,
        lr=lr,
        momentum=training.momentum,
        weight_decay=training.l2,
        dampening=0.0,
        nesterov=False,
        maximize=False,
    )


@torch.no_grad()
def evaluate(
    model: FlatModel,
    weights: Tensor,
    x: Tensor,
    y: Tensor,
    training: LocalTraining,
    batch: int = 256,
) -> tuple[Tensor, Tensor]:
    """The loss of each example (m,), and whether it is classified correctly (m,)."""
    model.load(weights)
    model.module.eval()
    losses, correct = [], []
    for inputs, targets in zip(torch.split(x, batch), torch.split(y, batch), strict=True):
        with model.user_code, training.autocast(weights.device):
            outputs = model.module(training.inputs(inputs))
        losses.append(training.losses(outputs, targets))
        if training.task == "classify":
            correct.append(outputs.argmax(1) == targets)
        else:
            correct.append(torch.zeros_like(losses[-1], dtype=torch.bool))
    return torch.cat(losses), torch.cat(correct)
