"""What a process needs to train like this one, as values that JSON can hold."""

from typing import Any

import torch

from fedro.models import FlatModel, build
from fedro.simulation.client import Recipe
from fedro.simulation.engines import Setting


def described(setting: Setting) -> dict[str, Any]:
    """The model by name, and how clients train."""
    recipe = setting.recipe
    tables = {key: getattr(recipe, key).tolist() for key in ("shift", "scale")}
    model = {
        "text": setting.model,
        "shape": setting.shape,
        "classes": setting.classes,
        "seed": setting.seed,
    }
    return {"model": model, "recipe": {**recipe._asdict(), **tables}}


def built(description: dict[str, Any]) -> tuple[FlatModel, Recipe]:
    """The model and the recipe that were described."""
    recipe = dict(description["recipe"])
    for key in ("shift", "scale"):
        recipe[key] = torch.tensor(recipe[key])
    return FlatModel(build(**description["model"])), Recipe(**recipe)
