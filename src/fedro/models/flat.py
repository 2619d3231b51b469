"""A module as one flat vector: what clients change and the server aggregates.

>>> from fedro.models import build
>>> model = FlatModel(build("logistic", (1, 8, 8), 10))
>>> model.vector.shape, model.trained
(torch.Size([650]), 650)
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy


class FlatModel:
    """A module whose trainable parameters, then floating-point buffers, are one vector (width,).

    Writing to `vector` changes the module, training the module changes `vector`. Frozen parameters
    and integer buffers stay out; `load` sets them back, should training have changed them.
    """

    def __init__(self, module: nn.Module, device: torch.device | str = "cpu") -> None:
        if any(is_lazy(part) for part in (*module.parameters(), *module.buffers())):
            raise ValueError("the model has lazy layers: call it on an example before it is used")
        self.module = module.to(device)
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        buffers = {name: b for name, b in module.named_buffers() if b.is_floating_point()}
        if not self.parameters:
            raise ValueError("the model has no trainable parameter: nothing would be learned")
        if wrong := {str(t.dtype) for t in self._tensors(buffers)} - {"torch.float32"}:
            raise ValueError(f"the model holds {', '.join(wrong)}: all must be float32")
        self.trained = sum(p.numel() for p in self.parameters)
        sizes = [t.numel() for t in self._tensors(buffers)]
        self.width = sum(sizes)
        self.vector = torch.empty(self.width, device=device)
        self.variances: list[slice] = []
        start = 0
        names = [""] * len(self.parameters) + list(buffers)
        for name, tensor, size in zip(names, self._tensors(buffers), sizes, strict=True):
            part = slice(start, start + size)
            view = self.vector[part].view(tensor.shape)
            view.copy_(tensor.detach())
            tensor.data = view
            if name.rpartition(".")[2] == "running_var":
                self.variances.append(part)
            start += size
        mine = {id(tensor) for tensor in self._tensors(buffers)}
        rest = [t for t in (*module.parameters(), *module.buffers()) if id(t) not in mine]
        self._rest = [(tensor.data, tensor.detach().clone()) for tensor in rest]

    def load(self, vector: Tensor) -> None:
        """Make the module that of this vector, and nothing that training left behind."""
        self.vector.copy_(vector)
        for tensor, kept in self._rest:
            tensor.copy_(kept)

    @property
    def changed(self) -> bool:
        """Whether training has changed something that is not in the vector."""
        return not all(torch.equal(tensor, kept) for tensor, kept in self._rest)

    def _tensors(self, buffers: dict[str, Tensor]) -> Iterator[Tensor]:
        yield from self.parameters
        yield from buffers.values()

    def tensors(self, vector: Tensor) -> dict[str, Tensor]:
        """The module's whole state with these weights, by name, as copies."""
        self.load(vector)
        return {key: value.detach().clone() for key, value in self.module.state_dict().items()}

    @property
    def batchable(self) -> bool:
        """Whether many clients can be computed at once: no state and no dice inside."""
        dice = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)
        inside = any(isinstance(part, dice) for part in self.module.modules())
        return not inside and self.trained == self.width
