"""Built-in models with examples that they take, and a model of a user's own."""

from torch import nn

from fedro.models import FlatModel, build

SHAPES = {"femnist_cnn": ((1, 28, 28), 62), "cifar_cnn": ((3, 32, 32), 10), "point": ((5,), 0)}


def example_shape(name: str) -> tuple[tuple[int, ...], int]:
    """The shape of an example, and the number of classes."""
    return SHAPES.get(name, ((1, 8, 8), 10))


def flat(name: str) -> FlatModel:
    """The model as a flat vector."""
    return FlatModel(build(name, *example_shape(name)))


class Own(nn.Module):
    """A user's module, which takes the number of classes but not the shape."""

    def __init__(self, classes: int, depth: int = 1) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(depth)))
        self.last = nn.Linear(64, classes)
