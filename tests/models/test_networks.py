"""The paper's networks to the parameter, and networks of the user's own."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedro.models import FlatModel, build
from model_cases import flat


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


def test_same_seed_same_weights_and_the_global_state_is_left_alone():
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    first, again = (FlatModel(build("mlp", (1, 8, 8), 10, seed=3)).vector for _ in range(2))
    other = FlatModel(build("mlp", (1, 8, 8), 10, seed=4)).vector
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.rand(2), expected)


def test_your_own_module():
    model = FlatModel(build("model_cases:Own(depth=2)", (1, 8, 8), 7))
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
        ("model_cases:Owm", "unknown name in model_cases 'Owm': did you mean 'Own'"),
        ("model_cases:flat(name='mlp')", "made a FlatModel: need a torch.nn.Module"),
        ("femnist_cnn", "takes images (channels, height, width) of at least 16×16"),
    ],
)
def test_errors_say_what_to_do(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        build(text, (1, 8, 8), 10)
