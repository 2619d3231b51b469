"""`FlatModel`: a module as one flat vector, which clients train and the server aggregates.

>>> from fedro.models import build
>>> model = FlatModel(build("logistic", (1, 8, 8), 10))
>>> model.vector.shape, model.trained
(torch.Size([650]), 650)
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedro.common.stages import load
from fedro.common.user_code import PACKAGE_CODE, UserCode, definition


class FlatModel:
    """A module whose trainable parameters, then floating-point buffers, are one vector.

    The vector and the module share memory: writing to `vector` changes the module, and training
    the module changes `vector`. Frozen parameters and integer buffers are not part of the vector;
    `load` resets them to their first values in case training changed them.

    Args:
        module: The module.
        device: The device to move it to.
        name: The text that `build` has built it from; None for a module that the user has made.

    Attributes:
        module: The module.
        user_code: The context in which to call the module, which may be the user's.
        vector: All values (width,): first the trainable parameters, then the statistics.
        width: The length of the vector.
        trained: The number of trainable parameters.
        parameters: The trainable parameters, for an optimizer.
        variances: Where in the vector the running variances of BatchNorm are.

    Raises:
        ValueError: The module has lazy layers, no trainable parameter, or values that are not
            float32.
    """

    def __init__(
        self, module: nn.Module, device: torch.device | str = "cpu", name: str | None = None
    ) -> None:
        if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
            raise ValueError("the model has lazy layers: call it on an example before you use it")
        self.module, self.user_code = module.to(device), _user_code(module, name)
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
            place = slice(start, start + size)
            view = self.vector[place].view(tensor.shape)
            view.copy_(tensor.detach())
            tensor.data = view
            if name.rpartition(".")[2] == "running_var":
                self.variances.append(place)
            start += size
        in_vector = {id(tensor) for tensor in self._tensors(buffers)}
        rest = [t for t in (*module.parameters(), *module.buffers()) if id(t) not in in_vector]
        self._rest = [(tensor.data, tensor.detach().clone()) for tensor in rest]

    def load(self, vector: Tensor) -> None:
        """Copy a vector into the module, and reset everything that is not part of the vector."""
        self.vector.copy_(vector)
        for tensor, original in self._rest:
            tensor.copy_(original)

    @property
    def changed(self) -> bool:
        """Whether training has changed something that is not part of the vector."""
        return not all(torch.equal(tensor, original) for tensor, original in self._rest)

    def _tensors(self, buffers: dict[str, Tensor]) -> Iterator[Tensor]:
        yield from self.parameters
        yield from buffers.values()

    def tensors(self, vector: Tensor) -> dict[str, Tensor]:
        """Return the state of the module with the values of this vector, as copies, by name."""
        self.load(vector)
        return {key: value.detach().clone() for key, value in self.module.state_dict().items()}

    @property
    def batchable(self) -> bool:
        """Whether many clients can be computed at once: no statistics and no dropout."""
        unsuited = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)
        has_unsuited = any(isinstance(layer, unsuited) for layer in self.module.modules())
        return not has_unsuited and self.trained == self.width


def _user_code(module: nn.Module, name: str | None) -> UserCode:
    """The context in which to call a module: one of the user's own, or a built-in one."""
    shown = type(module).__name__ if name is None else name.partition("(")[0].strip()
    if name is not None and ":" not in shown:
        return PACKAGE_CODE
    function = type(module).forward
    if name is not None and definition(function) is None:  # layers of torch's: who joined them?
        function = load(shown)
    return UserCode(f"model {shown}", function)
