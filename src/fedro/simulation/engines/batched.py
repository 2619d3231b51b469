"""The engine that trains many clients of a small model at once.

For small models, calling PyTorch costs more than the computation itself. Therefore `vmap` turns the
gradients of a group of clients into one program, which is recorded once as a graph of plain
operations. Groups are padded to a fixed size and computed by one thread, so the bits of a client's
update depend neither on the other sampled clients nor on the number of cores.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from fedro.simulation.client import restraint_gradient
from fedro.simulation.engines import GROUP_SIZE, EngineConfig, Job
from fedro.simulation.engines.inline import InlineEngine, one_thread

aten = torch.ops.aten


class BatchedEngine(InlineEngine):
    """Trains many clients of a small model at once."""

    kind = "batched"

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._gradients: Callable[..., tuple[Tensor, Tensor]] | None = None

    @torch.no_grad()
    def train(self, model: Tensor, jobs: Sequence[Job], lr: float) -> dict[int, float]:
        """Run all jobs from this model and return their mean losses by row."""
        losses: dict[int, float] = {}
        for start in range(0, len(jobs), GROUP_SIZE):
            group = jobs[start : start + GROUP_SIZE]
            with one_thread():
                updates, means = self._train_group(model, group, lr)
            rows = [job.row for job in group]
            self.updates[rows] = updates[: len(group)]
            losses |= dict(zip(rows, means.tolist(), strict=False))
        return losses

    def threads(self) -> AbstractContextManager[None]:
        """Context with one thread: two would spend more time waiting than computing."""
        return one_thread()

    def _train_group(self, model: Tensor, jobs: Sequence[Job], lr: float) -> tuple[Tensor, Tensor]:
        """The updates (GROUP_SIZE, width) and mean losses (GROUP_SIZE,) of a padded group."""
        x, y = self._batches(jobs)
        training = self.config.training
        weights = model.expand(GROUP_SIZE, -1).clone()
        restraints = self._restraints(jobs)
        velocity, total = torch.zeros_like(weights), torch.zeros(GROUP_SIZE, device=weights.device)
        for inputs, targets in zip(x, y, strict=True):
            gradients, loss = self._gradient(weights, inputs, targets)
            total += loss
            if restraints is not None:
                penalty = restraint_gradient(weights - model, restraints)
                gradients = gradients.mul_(1 - restraints).add_(penalty)
            if training.l2:
                gradients = gradients.add_(weights, alpha=training.l2)
            if training.momentum:
                gradients = velocity.mul_(training.momentum).add_(gradients)
            weights.add_(gradients, alpha=-lr)
        return weights - model, total / len(x)

    def _restraints(self, jobs: Sequence[Job]) -> Tensor | None:
        """The restraints of a padded group (GROUP_SIZE, 1), or None if no job has one."""
        restraints = [job.restraint for job in jobs]
        if not any(restraints):
            return None
        restraints += [0.0] * (GROUP_SIZE - len(restraints))
        return torch.tensor(restraints, device=self.config.device)[:, None]

    def _batches(self, jobs: Sequence[Job]) -> tuple[Tensor, Tensor]:
        """The batches of a group by step: x (K, GROUP_SIZE, B, …) and y (K, GROUP_SIZE, B)."""
        drawn = [job.batches() for job in jobs]
        drawn += drawn[:1] * (GROUP_SIZE - len(drawn))
        device = self.config.device
        x, y = (torch.stack(part, dim=1).to(device) for part in zip(*drawn, strict=True))
        return x, y

    def _gradient(self, weights: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if x.dtype == torch.uint8:
            x = (x.float() - self.config.training.shift) / self.config.training.scale
        if self._gradients is None:
            with torch.enable_grad():
                graph = make_fx(vmap(grad_and_value(self._loss())))(weights, x, y)
            self._gradients = without_reshapes(graph).forward
        return self._gradients(weights, x, y)

    def _loss(self) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """The loss of one client's batch as a function of its weights (width,)."""
        training, module, user_code = self.config.training, self.flat.module, self.flat.user_code
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        sizes = [p.numel() for _, p in named]

        def loss(weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
            parts = zip(named, torch.split(weights, sizes), strict=True)
            tensors = {name: part.view(p.shape) for (name, p), part in parts}
            with user_code, training.autocast(weights.device):
                outputs = functional_call(module, tensors, (x,))
            return training.losses(outputs, y).mean()

        return loss


def without_reshapes(graph: GraphModule) -> GraphModule:
    """Remove operations that reshape a tensor to the shape it has: a third of all operations."""
    reshapes = (aten.view.default, aten._unsafe_view.default, aten.expand.default)
    for node in graph.graph.nodes:
        before = node.args[0] if node.target in reshapes else None
        if before is not None and before.meta["val"].shape == node.meta["val"].shape:
            node.replace_all_uses_with(before)
            graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph
