"""The built-in networks by name, and `build`, which also builds networks of your own."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fedro.common.checks import count
from fedro.common.options import Options, arguments_for
from fedro.common.registry import Table
from fedro.common.stages import load, parse_stage
from fedro.common.streams import derived, seeded
from fedro.common.user_code import user_code
from fedro.models.convolution import Conv2d

Shape = tuple[int, ...]

MODELS: Table[Callable[..., nn.Module]] = Table("model")


def register(function: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Put a function (shape, classes, *, options) -> module into the table under its own name."""
    MODELS[function.__name__] = function
    return function


@register
def logistic(shape: Shape, classes: int) -> nn.Module:
    """Multinomial logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


@register
def mlp(shape: Shape, classes: int, *, hidden: int = 64, normalize: bool = False) -> nn.Module:
    """One hidden layer; with normalize, each example is first scaled to mean 0 and variance 1."""
    hidden, inputs = count("hidden", hidden, 1), math.prod(shape)
    start = [nn.LayerNorm(inputs, elementwise_affine=False)] if normalize else []
    layers = (nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))
    return nn.Sequential(nn.Flatten(), *start, *layers)


@register
def small_cnn(shape: Shape, classes: int, *, channels: int = 16) -> nn.Module:
    """One convolution, for small images like the digits."""
    depth, height, width = _image("small_cnn", shape, at_least=4)
    channels = count("channels", channels, 1)
    return nn.Sequential(
        nn.Conv2d(depth, channels, 3),
        *_rectified_pool(),
        nn.Flatten(),
        nn.Linear(channels * ((height - 2) // 2) * ((width - 2) // 2), classes),
    )


@register
def femnist_cnn(shape: Shape, classes: int) -> nn.Module:
    """The paper's network for FEMNIST: 2,368,318 parameters at 28×28 and 62 classes."""
    depth, height, width = _image("femnist_cnn", shape, at_least=16)
    rest = 128 * (((height - 4) // 2 - 4) // 2) * (((width - 4) // 2 - 4) // 2)
    return nn.Sequential(
        Conv2d(depth, 64, 5),
        *_rectified_pool(),
        Conv2d(64, 128, 5),
        *_rectified_pool(),
        nn.Flatten(),
        nn.Linear(rest, 1024),
        nn.ReLU(),
        nn.Linear(1024, classes),
        nn.LogSoftmax(dim=1),
    )


@register
def cifar_cnn(shape: Shape, classes: int, *, dropout: float = 0.25) -> nn.Module:
    """The paper's network for CIFAR-10, with BatchNorm and dropout."""
    depth, height, width = _image("cifar_cnn", shape, at_least=4)

    def convolution(inputs: int, outputs: int) -> list[nn.Module]:
        return [Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(outputs)]

    return nn.Sequential(
        *convolution(depth, 64),
        *convolution(64, 64),
        nn.MaxPool2d(2),
        nn.Dropout(dropout),
        *convolution(64, 128),
        *convolution(128, 128),
        nn.MaxPool2d(2),
        nn.Dropout(dropout),
        nn.Flatten(),
        nn.Linear(128 * (height // 4) * (width // 4), 128),
        nn.ReLU(),
        nn.Linear(128, classes),
        nn.LogSoftmax(dim=1),
    )


@register
def point(shape: Shape, classes: int) -> nn.Module:
    """A point w, returned for every example: the model of the synthetic problem."""
    return Point(shape)


class Point(nn.Module):
    """A module that returns its parameter w for every input."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(shape))

    def forward(self, x: Tensor) -> Tensor:
        """Return w for each example."""
        return self.w.expand(x.shape[0], *self.w.shape)


def _rectified_pool() -> list[nn.Module]:
    """ReLU and 2×2 pooling; pooling first gives the same values with a quarter of the work."""
    return [nn.MaxPool2d(2), nn.ReLU()]


def _image(name: str, shape: Shape, at_least: int) -> tuple[int, int, int]:
    if len(shape) != 3 or min(shape[1:]) < at_least:
        raise ValueError(
            f"model {name} takes images (channels, height, width) of at least "
            f"{at_least}×{at_least}, not examples of shape {tuple(shape)}"
        )
    return shape[0], shape[1], shape[2]


def build(text: str, shape: Shape, classes: int, seed: int = 0) -> nn.Module:
    """Build the module that a text names, with weights initialized from a seed.

    Args:
        text: A built-in network such as ``"mlp(hidden=32)"``, or a class or function of your own
            such as ``"my_module:Net(width=8)"``, which may take `shape` and `classes`.
        shape: The shape of one example.
        classes: The number of classes; 0 for regression.
        seed: Decides the initial weights.

    Raises:
        ValueError: The name or an option is unknown, the network does not take such examples, or
            the function returned something else than a module.

    Example:
        >>> sum(p.numel() for p in build("mlp(hidden=32)", (1, 8, 8), 10).parameters())
        2410
    """
    make, given = _parse(text, tuple(shape), classes)
    return seeded_module(lambda: make(**given), f"model {text!r}", seed)


def check_model(text: str) -> None:
    """Check the name and the options of a model without building it.

    Raises:
        ValueError: The name or an option is unknown or not allowed, or a function of the user's own
            cannot be imported or called so.
    """
    _parse(text, (), 0)


def _parse(text: str, shape: Shape, classes: int) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function that a text names, and its arguments."""
    name, options = parse_stage("model", text)
    make: Callable[..., Any] = load(name) if ":" in name else MODELS[name]
    if not callable(make):
        raise ValueError(f"{name} is {type(make).__name__}, not a class or function of a model")
    given: dict[str, Any] = {"shape": shape, "classes": classes}
    if ":" in name:
        arguments = arguments_for(name, make, options, given)
        return user_code(f"model {name}", make).wrap(make), arguments
    Options(name, make).check(options)
    return make, given | options


def seeded_module(make: Callable[[], Any], name: str, seed: int) -> nn.Module:
    """Call `make` with torch's random numbers set from the seed, and check that it is a module."""
    with seeded(derived(seed, "model")):
        module = make()
    if not isinstance(module, nn.Module):
        raise ValueError(f"{name} made a {type(module).__name__}: need a torch.nn.Module")
    return module
