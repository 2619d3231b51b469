"""From an experiment to what a run works with: data, model, rule, attack, and a safe n̂ and b̂."""

import copy
import math
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedro.attacks import Attack, parse_attack
from fedro.common.streams import seeded, stream
from fedro.common.text import counted
from fedro.data import Examples, Federation, make_federation
from fedro.models import FlatModel, build, seeded_module
from fedro.rules import Rule, parse_rule
from fedro.server import State
from fedro.simulation import engines
from fedro.simulation.client import Recipe, evaluate, local_update
from fedro.simulation.experiment import Experiment, ExperimentError
from fedro.simulation.sample_size import choose_sample

MODEL_FOR = {
    "digits": "mlp",
    "femnist": "femnist_cnn",
    "cifar10": "cifar_cnn",
    "synthetic": "point",
}


@dataclass(frozen=True)
class Setup:
    """All that a run needs and that stays the same over its rounds."""

    experiment: Experiment
    federation: Federation
    build: Callable[[], nn.Module]
    model_name: str | None  # None for a module given as an object
    rule: Rule
    attack: Attack
    sampled: int
    tolerated: int
    root: Examples | None
    notes: tuple[str, ...]  # what the user should know before the run starts

    @cached_property
    def flat(self) -> FlatModel:
        """The model as one vector."""
        return FlatModel(self.build(), self.device)

    @cached_property
    def start(self) -> Tensor:
        """The model that training starts from (width,)."""
        return FlatModel(self.build(), self.device).vector

    def module(self, state: State) -> nn.Module:
        """The trained module: the run's output, or the model after the rounds until now."""
        module = self.build()
        module.load_state_dict(self.flat.tensors(state.output))
        return module

    @cached_property
    def byzantine(self) -> NDArray[np.bool_]:
        """Which clients are bad (n,)."""
        n, bad = self.federation.clients, self.experiment.byzantine
        mask = np.zeros(n, dtype=bool)
        mask[stream(self.experiment.seed, "byzantine").choice(n, size=bad, replace=False)] = True
        return mask

    @cached_property
    def device(self) -> str:
        """Where training happens."""
        name, found = self.experiment.device, torch.cuda.device_count()
        if name == "auto":
            return "cuda" if found else "cpu"
        if name in ("cpu", *("cuda" for _ in range(found)), *(f"cuda:{i}" for i in range(found))):
            return name
        seen = f"PyTorch sees {counted(found, 'CUDA device')} here"
        raise ExperimentError(f"device={name!r}: use 'auto', 'cpu', 'cuda' or 'cuda:0'; {seen}")

    @cached_property
    def engine_kind(self) -> str:
        """The kind of engine."""
        elsewhere = self.model_name is not None and not self.model_name.startswith("__main__:")
        kind = engines.choose(self.experiment.engine, self.flat, self.device, elsewhere)
        if kind != "batched":
            return kind
        if (trouble := engines.why_not_batched(self._engine_setting())) is None:
            return kind
        if self.experiment.engine == "batched":
            raise ExperimentError(f"engine='batched' cannot train this model: {trouble}")
        return engines.choose("auto", self.flat, self.device, elsewhere, batched=False)

    @cached_property
    def recipe(self) -> Recipe:
        """How clients train."""
        shift, scale = (
            torch.as_tensor(value, dtype=torch.float32, device=self.device)
            for value in (self.federation.shift, self.federation.scale)
        )
        e = self.experiment
        return Recipe(self.federation.task, e.momentum, e.l2, e.precision, shift, scale)

    def make_engine(self) -> engines.Engine:
        """An engine with a row for each sampled client, and one for the server's own update."""
        return engines.make_engine(self.engine_kind, self._engine_setting())

    def _engine_setting(self) -> engines.Setting:
        x, y = self.federation.train(0)
        return engines.Setting(
            build=self.build,
            recipe=self.recipe,
            rows=self.sampled + (self.root is not None),
            steps=self.experiment.local_steps,
            batch=self.experiment.batch_size,
            example=(x[0], y[0]),
            model=self.model_name,
            shape=self.federation.shape,
            classes=outputs(self.federation),
            seed=self.experiment.seed,
            device=self.device,
            workers=self.experiment.workers,
        )

    @cached_property
    def test(self) -> tuple[Examples, NDArray[np.int64]]:
        """The honest clients' test examples, and whose each is."""
        honest = np.flatnonzero(~self.byzantine)
        parts = [self.federation.test(int(client)) for client in honest]
        owners = np.repeat(np.arange(len(honest)), [len(part.y) for part in parts])
        if not owners.size:
            raise ExperimentError("no honest client has test data: nothing could be evaluated")
        joined = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        return Examples(*joined), owners

    @cached_property
    def triggered(self) -> Examples | None:
        """Those test examples that show the attack's backdoor; None if there is none to show."""
        found = self.attack.triggered(self.test[0], self.federation.classes)
        return found if found is not None and len(found.y) else None

    def fingerprint(self) -> dict[str, Any]:
        """What must be the same for the same bits; a run is resumed only where it is."""
        packages = ("fedro", "torch", "numpy", "numba")
        inline = self.engine_kind == "inline" and self.device == "cpu"
        data = self.federation
        counts = (data.sizes, data.test_sizes, data.label_counts)
        return {
            **{package: version(package) for package in packages},
            "python": platform.python_version(),
            "cpu": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
            "device": self.device,
            "precision": self.experiment.precision,
            "engine": self.engine_kind,
            "group": engines.GROUP if self.engine_kind == "batched" else None,
            "threads": torch.get_num_threads() if inline else None,
            "model": f"{self.model_name or 'an object'}, {checksum(self.start.cpu().numpy())}",
            "data": f"{data.name}, {checksum(*counts)}",
            "sampled": self.sampled,
            "tolerated": self.tolerated,
        }


def checksum(*arrays: NDArray[Any]) -> str:
    """A short name for the contents of some arrays."""
    digest = blake2b(digest_size=8)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def outputs(federation: Federation) -> int:
    """How many numbers a model gives for an example: a score for each class, or the targets."""
    return federation.classes or max(1, math.prod(federation.train(0).y.shape[1:]))


def prepare(
    experiment: Experiment,
    *,
    federation: Federation | None = None,
    model: nn.Module | Callable[[], nn.Module] | None = None,
) -> Setup:
    """Check everything that can be checked before training, and choose what was left open."""
    rule, attack = parse_rule(experiment.rule), parse_attack(experiment.attack)
    federation = federation or make_federation(
        experiment.dataset,
        clients=experiment.clients,
        partition=experiment.partition,
        seed=experiment.seed,
    )
    if experiment.clients not in (None, federation.clients):
        raise ExperimentError(
            f"clients={experiment.clients}, but the federation given has {federation.clients}"
        )
    if experiment.byzantine >= federation.clients:
        raise ExperimentError(
            f"byzantine={experiment.byzantine} of {federation.clients} clients: somebody must be "
            "honest"
        )
    sampled, tolerated, notes = choose_sample(experiment, federation.clients)
    _check_rule(rule, sampled, tolerated, experiment)
    name = None if model else experiment.model or _model_for(experiment.dataset)
    setup = Setup(
        experiment=experiment,
        federation=federation,
        build=_builder(model if name is None else name, federation, experiment.seed),
        model_name=name,
        rule=rule,
        attack=attack,
        sampled=sampled,
        tolerated=tolerated,
        root=_root(experiment, federation),
        notes=tuple(notes),
    )
    _try_out(setup)
    return setup


def _try_out(setup: Setup) -> None:
    """One step and one evaluation, so that what cannot work is said now."""
    model, size = FlatModel(setup.build(), setup.device), setup.experiment.batch_size
    dice = stream(setup.experiment.seed, "trial")
    room = torch.empty_like(model.vector)
    start = model.vector.clone()
    for examples in filter(None, (setup.federation.train(0), setup.root)):
        x, y = (part.to(setup.device) for part in draw_batches(examples, dice, 1, size))
        try:
            with seeded(0):
                local_update(model, start, x, y, setup.recipe, 1e-3, room)
        except Exception as error:
            raise ExperimentError(
                f"a trial step of {setup.model_name or 'the model'} with {size} examples of shape "
                f"{tuple(x.shape[2:])} failed: {type(error).__name__}: {error}"
            ) from error
    (x, y), _ = setup.test
    evaluate(model, start, x[:size].to(setup.device), y[:size].to(setup.device), setup.recipe)
    _try_attack(setup, dice)


def _try_attack(setup: Setup, dice: np.random.Generator) -> None:
    """Poison a bad client's data and set the trigger, so that what cannot work is said now."""
    _ = setup.attack.restraint
    for client in np.flatnonzero(setup.byzantine)[:1].tolist():
        setup.attack.poison(setup.federation.train(client), setup.federation.classes, dice)
    _ = setup.triggered


def _check_rule(rule: Rule, sampled: int, tolerated: int, experiment: Experiment) -> None:
    if rule.b is not None:
        raise ExperimentError(
            f"rule={experiment.rule!r} names b: leave it out, the rule gets tolerated={tolerated}"
        )
    rule.kappa(sampled, tolerated)  # raises where the rule may not be used
    needs = [entry.name for entry in rule.entries if entry.reference == "needed"]
    if needs and experiment.root is None:
        raise ExperimentError(
            f"rule={experiment.rule!r}: {needs[0]} compares with an update of the server's own; "
            "name the examples it trains on, as in root=100"
        )
    if experiment.root is not None and not needs:
        raise ExperimentError(f"root={experiment.root}: rule={experiment.rule!r} uses no root set")


def _model_for(dataset: str) -> str:
    name = dataset.partition("(")[0].strip()
    if name not in MODEL_FOR:
        raise ExperimentError(
            f'model is missing: dataset={dataset!r} has no usual one; give model="mlp" or your '
            'own as model="my_module:Net"'
        )
    return MODEL_FOR[name]


def _builder(model: Any, federation: Federation, seed: int) -> Callable[[], nn.Module]:
    """What makes the same module each time, from a text, a module, or a function that makes one."""
    if isinstance(model, str):
        return lambda: build(model, federation.shape, outputs(federation), seed)
    if isinstance(model, nn.Module):
        kept = copy.deepcopy(model)
        return lambda: copy.deepcopy(kept)
    return lambda: copy.deepcopy(seeded_module(model, "model=…", seed))


def _root(experiment: Experiment, federation: Federation) -> Examples | None:
    """The server's own examples: drawn from the clients' training data, or another data set."""
    if experiment.root is None:
        return None
    if isinstance(experiment.root, str):
        federation = make_federation(experiment.root, seed=experiment.seed)
    parts = [federation.train(client) for client in range(federation.clients)]
    x, y = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    if isinstance(experiment.root, str):
        return Examples(x, y)
    if experiment.root > len(y):
        raise ExperimentError(f"root={experiment.root}: there are only {len(y)} examples")
    picked = stream(experiment.seed, "root").choice(len(y), experiment.root, replace=False)
    index = torch.from_numpy(picked)
    return Examples(x[index], y[index])


def draw_batches(
    examples: Examples, dice: np.random.Generator, steps: int, size: int
) -> tuple[Tensor, Tensor]:
    """K batches of B, i.i.d. with replacement: x (K, B, …) and y (K, B)."""
    index = dice.integers(0, len(examples.y), size=(steps, size))
    x, y = (torch.from_numpy(part.numpy().take(index, axis=0)) for part in examples)
    return x, y
