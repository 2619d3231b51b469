"""A module and its flat vector are one, and modules that cannot be trained are refused."""

import pytest
import torch
from torch import nn

from fedro.models import MODELS, FlatModel, build
from model_cases import example_shape, flat


@pytest.mark.parametrize("name", MODELS)
def test_module_and_vector_are_one(name):
    model = flat(name)
    shape, _ = example_shape(name)
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


def test_models_that_cannot_be_trained_are_refused():
    with pytest.raises(ValueError, match="no trainable parameter"):
        FlatModel(nn.ReLU())
    with pytest.raises(ValueError, match=r"torch\.float64: all must be float32"):
        FlatModel(nn.Linear(2, 2).double())
