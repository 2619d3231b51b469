"""Many clients at once, for models so small that calling PyTorch costs more than computing.

The gradients of a group of clients are one program, made by `vmap` and recorded once as a graph of
plain operations. Groups have a fixed width and are padded, and one thread computes them, so a
client's bits depend neither on who else was sampled nor on the number of cores.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from fedro.simulation.client import pull
from fedro.simulation.engines import GROUP, Job, Setting
from fedro.simulation.engines.inline import Inline, one_thread

aten = torch.ops.aten


class Batched(Inline):
    """The engine for small models."""

    kind = "batched"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._gradients: Callable[..., tuple[Tensor, Tensor]] | None = None

    @torch.no_grad()
    def train(self, model: Tensor, jobs: Sequence[Job], lr: float) -> dict[int, float]:
        """Run all jobs from this model; their mean losses, by row."""
        losses: dict[int, float] = {}
        for start in range(0, len(jobs), GROUP):
            group = jobs[start : start + GROUP]
            with one_thread():
                updates, means = self._train_group(model, group, lr)
            rows = [job.row for job in group]
            self.updates[rows] = updates[: len(group)]
            losses |= dict(zip(rows, means.tolist(), strict=False))
        return losses

    def working(self) -> AbstractContextManager[None]:
        """With one thread: two would wait for each other longer than they work."""
        return one_thread()

    def _train_group(self, model: Tensor, jobs: Sequence[Job], lr: float) -> tuple[Tensor, Tensor]:
        """The updates (GROUP, width) and mean losses (GROUP,) of a padded group."""
        x, y = self._batches(jobs)
        recipe = self.setting.recipe
        weights = model.expand(GROUP, -1).clone()
        restraints = self._restraints(jobs)
        velocity, total = torch.zeros_like(weights), torch.zeros(GROUP, device=weights.device)
        for inputs, targets in zip(x, y, strict=True):
            gradients, loss = self._gradient(weights, inputs, targets)
            total += loss
            if restraints is not None:
                gradients = gradients.mul_(1 - restraints).add_(pull(weights - model, restraints))
            if recipe.l2:
                gradients = gradients.add_(weights, alpha=recipe.l2)
            if recipe.momentum:
                gradients = velocity.mul_(recipe.momentum).add_(gradients)
            weights.add_(gradients, alpha=-lr)
        return weights - model, total / len(x)

    def _restraints(self, jobs: Sequence[Job]) -> Tensor | None:
        """Those of a padded group (GROUP, 1); None if there is none."""
        given = [job.restraint for job in jobs]
        given += [0.0] * (GROUP - len(given))
        return torch.tensor(given, device=self.setting.device)[:, None] if any(given) else None

    def _batches(self, jobs: Sequence[Job]) -> tuple[Tensor, Tensor]:
        """The batches of a group, step by step: x (K, GROUP, B, …) and y (K, GROUP, B)."""
        drawn = [job.batches() for job in jobs]
        drawn += drawn[:1] * (GROUP - len(drawn))
        device = self.setting.device
        x, y = (torch.stack(part, dim=1).to(device) for part in zip(*drawn, strict=True))
        return x, y

    def _gradient(self, weights: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if x.dtype == torch.uint8:
            x = (x.float() - self.setting.recipe.shift) / self.setting.recipe.scale
        if self._gradients is None:
            with torch.enable_grad():
                graph = make_fx(vmap(grad_and_value(self._loss())))(weights, x, y)
            self._gradients = without_idle(graph).forward
        return self._gradients(weights, x, y)

    def _loss(self) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """The loss of one client's batch as a function of its weights (width,)."""
        recipe, module = self.setting.recipe, self.flat.module
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        sizes = [p.numel() for _, p in named]

        def loss(weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
            parts = zip(named, torch.split(weights, sizes), strict=True)
            tensors = {name: part.view(p.shape) for (name, p), part in parts}
            with recipe.autocast(weights.device):
                outputs = functional_call(module, tensors, (x,))
            return recipe.losses(outputs, y).mean()

        return loss


def without_idle(graph: GraphModule) -> GraphModule:
    """Leave out operations that only say again what shape a tensor has: they are a third."""
    idle = (aten.view.default, aten._unsafe_view.default, aten.expand.default)
    for node in graph.graph.nodes:
        before = node.args[0] if node.target in idle else None
        if before is not None and before.meta["val"].shape == node.meta["val"].shape:
            node.replace_all_uses_with(before)
            graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph
