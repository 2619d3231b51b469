"""The paper's networks to the parameter, and modules as one vector."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedro.models import MODELS, FlatModel, build

SHAPES = {"femnist_cnn": ((1, 28, 28), 62), "cifar_cnn": ((3, 32, 32), 10), "point": ((5,), 0)}


def flat(name, **options):
    shape, classes = SHAPES.get(name, ((1, 8, 8), 10))
    text = f"{name}({', '.join(f'{k}={v}' for k, v in options.items())})" if options else name
    return FlatModel(build(text, shape, classes))


def test_sizes_are_the_papers():
    assert flat("femnist_cnn").trained == 2_368_318
    cifar = flat("cifar_cnn")
    convolutions = (27 + 1) * 64 + (576 + 1) * 64 + (576 + 1) * 128 + (1152 + 1) * 128
    assert cifar.trained == convolutions + 2 * 2 * (64 + 128) + 8193 * 128 + 129 * 10
    assert cifar.width - cifar.trained == 2 * 2 * (64 + 128)
    assert sum(part.stop - part.start for part in cifar.variances) == 2 * (64 + 128)


def test_the_femnist_network_is_the_papers_function():
    module = build("femnist_cnn", (1, 28, 28), 62)
    layers = [m for m in module if isinstance(m, (nn.Conv2d, nn.Linear))]
    x = torch.rand(3, 1, 28, 28)
    y = F.max_pool2d(F.relu(layers[0](x)), 2)
    y = F.max_pool2d(F.relu(layers[1](y)), 2)
    y = F.relu(layers[2](y.flatten(1)))
    torch.testing.assert_close(module(x), F.log_softmax(layers[3](y), dim=1))
    loss, expected = module(x)[:, 0].sum(), F.log_softmax(layers[3](y), dim=1)[:, 0].sum()
    wanted = torch.autograd.grad(expected, layers[0].weight)
    torch.testing.assert_close(torch.autograd.grad(loss, layers[0].weight), wanted)


@pytest.mark.parametrize("name", MODELS)
def test_module_and_vector_are_one(name):
    model = flat(name)
    shape, _ = SHAPES.get(name, ((1, 8, 8), 10))
    before = {key: value.clone() for key, value in model.module.state_dict().items()}
    model.vector.add_(1.0)
    for key, value in model.module.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(value, before[key] + 1)
    vector = model.vector.clone()
    optimizer = torch.optim.SGD(model.parameters, lr=0.1)
    model.module(torch.rand(4, *shape)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(model.vector[: model.trained], vector[: model.trained])
    tensors = model.tensors(vector)
    model.module.load_state_dict(tensors)
    assert torch.equal(model.vector, vector)


def test_same_seed_same_weights_and_the_global_state_is_left_alone():
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    first, again = (FlatModel(build("mlp", (1, 8, 8), 10, seed=3)).vector for _ in range(2))
    other = FlatModel(build("mlp", (1, 8, 8), 10, seed=4)).vector
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.rand(2), expected)


def test_frozen_layers_and_integer_buffers_stay_out():
    module = build("cifar_cnn", (3, 32, 32), 10)
    for parameter in module[0].parameters():
        parameter.requires_grad_(False)
    frozen = module[0].weight.clone()
    model = FlatModel(module)
    assert model.trained == flat("cifar_cnn").trained - 28 * 64
    model.vector.zero_()
    assert torch.equal(module[0].weight, frozen)
    assert not model.batchable


def test_tied_weights_are_counted_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.b.weight = self.a.weight

    assert FlatModel(Tied()).width == 16 + 4 + 4


class Own(nn.Module):
    def __init__(self, classes, depth=1):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(depth)))
        self.last = nn.Linear(64, classes)


def test_your_own_module():
    model = FlatModel(build("test_models:Own(depth=2)", (1, 8, 8), 7))
    assert model.width == 2 * 65 * 64 + 65 * 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mpl", "unknown model 'mpl': did you mean 'mlp'"),
        ("mlp(hiden=3)", "unknown option of mlp 'hiden': did you mean 'hidden'"),
        ("mlp(hidden=0)", "hidden=0: must be at least 1"),
        ("mlp(hidden='a')", "hidden must be of type int"),
        ("mlp | mlp", "give one model"),
        ("mlp(", "cannot read the model"),
        ("nowhere:Net", "there is no module 'nowhere'"),
        ("test_models:Owm", "unknown name in test_models 'Owm': did you mean 'Own'"),
        ("test_models:flat(name='mlp')", "made a FlatModel: need a torch.nn.Module"),
        ("femnist_cnn", "takes images (channels, height, width) of at least 16×16"),
    ],
)
def test_errors_say_what_to_do(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        build(text, (1, 8, 8), 10)


def test_models_that_cannot_be_trained_are_refused():
    with pytest.raises(ValueError, match="no trainable parameter"):
        FlatModel(nn.ReLU())
    with pytest.raises(ValueError, match=r"torch\.float64: all must be float32"):
        FlatModel(nn.Linear(2, 2).double())
