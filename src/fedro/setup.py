"""From an experiment to what a run works with: data, model, rule, attack, and a safe n̂ and b̂."""

import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedro import engine
from fedro.attacks import Attack, parse_attack
from fedro.client import Recipe
from fedro.data import Examples, Federation, make_federation
from fedro.experiment import Experiment, ExperimentError
from fedro.feasibility import Setting as Risk
from fedro.models import FlatModel, build
from fedro.planning import plan
from fedro.rng import stream
from fedro.rules import Rule, parse_rule
from fedro.wording import percent

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
    def byzantine(self) -> NDArray[np.bool_]:
        """Which clients are bad (n,)."""
        n, bad = self.federation.clients, self.experiment.byzantine
        mask = np.zeros(n, dtype=bool)
        mask[stream(self.experiment.seed, "byzantine").choice(n, size=bad, replace=False)] = True
        return mask

    @cached_property
    def device(self) -> str:
        """Where training happens."""
        name = self.experiment.device
        if name == "auto":
            return "cuda" if torch.cuda.is_available() else "cpu"
        if name.startswith("cuda") and not torch.cuda.is_available():
            raise ExperimentError(f"device={name!r}: PyTorch sees no CUDA device here; use 'cpu'")
        try:
            return str(torch.device(name))
        except RuntimeError:
            raise ExperimentError(f"device={name!r}: use 'auto', 'cpu' or 'cuda'") from None

    @cached_property
    def engine_kind(self) -> str:
        """The kind of engine."""
        by_name = self.model_name is not None
        return engine.choose(self.experiment.engine, self.flat, self.device, by_name)

    @cached_property
    def recipe(self) -> Recipe:
        """How clients train."""
        shift, scale = (
            torch.as_tensor(value, dtype=torch.float32, device=self.device)
            for value in (self.federation.shift, self.federation.scale)
        )
        e = self.experiment
        return Recipe(self.federation.task, e.momentum, e.l2, e.precision, shift, scale)

    def make_engine(self) -> engine.Engine:
        """An engine with a row for each sampled client, and one for the server's own update."""
        x, y = self.federation.train(0)
        setting = engine.Setting(
            build=self.build,
            recipe=self.recipe,
            rows=self.sampled + (self.root is not None),
            steps=self.experiment.local_steps,
            batch=self.experiment.batch_size,
            example=(x[0], y[0]),
            model=self.model_name,
            shape=self.federation.shape,
            classes=self.federation.classes,
            seed=self.experiment.seed,
            device=self.device,
            workers=self.experiment.workers,
        )
        return engine.make_engine(self.engine_kind, setting)

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

    def fingerprint(self) -> dict[str, Any]:
        """What must be the same for the same bits; a run is resumed only where it is."""
        return {
            "fedro": version("fedro"),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "cpu": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
            "device": self.device,
            "precision": self.experiment.precision,
            "engine": self.engine_kind,
            "group": _group() if self.engine_kind == "batched" else None,
        }


def _group() -> int:
    from fedro.engine.batched import GROUP

    return GROUP


def prepare(
    experiment: Experiment,
    *,
    federation: Federation | None = None,
    model: Callable[[], nn.Module] | None = None,
) -> Setup:
    """Check everything that can be checked before training, and choose what was left open."""
    rule, attack = parse_rule(experiment.rule), parse_attack(experiment.attack)
    federation = federation or make_federation(
        experiment.dataset,
        clients=experiment.clients,
        partition=experiment.partition,
        seed=experiment.seed,
    )
    if experiment.byzantine >= federation.clients:
        raise ExperimentError(
            f"byzantine={experiment.byzantine} of {federation.clients} clients: somebody must be "
            "honest"
        )
    sampled, tolerated, notes = choose_sample(experiment, federation.clients)
    _check_rule(rule, sampled, tolerated, experiment)
    name = None if model else experiment.model or _model_for(experiment.dataset)
    return Setup(
        experiment=experiment,
        federation=federation,
        build=model or _builder(str(name), federation, experiment.seed),
        model_name=name,
        rule=rule,
        attack=attack,
        sampled=sampled,
        tolerated=tolerated,
        root=_root(experiment, federation),
        notes=tuple(notes),
    )


def choose_sample(experiment: Experiment, clients: int) -> tuple[int, int, list[str]]:
    """n̂ and b̂, from the plan where they are not given, and what to say about them."""
    sampled, tolerated = experiment.sampled, experiment.tolerated
    if sampled is not None and sampled > clients:
        raise ExperimentError(f"sampled={sampled}: there are only {clients} clients")
    if tolerated is None:
        chosen = plan(
            clients=clients,
            byzantine=experiment.byzantine,
            rounds=experiment.rounds,
            confidence=experiment.confidence,
            bound=experiment.bound,
            sampled=sampled,
        )
        return chosen.sampled, chosen.tolerated, []
    assert sampled is not None  # the experiment has seen to it
    risk = Risk(
        population=clients,
        byzantine=experiment.byzantine,
        draws=experiment.rounds,
        retries=0,
        dropout=0.0,
        confidence=experiment.confidence,
        bound="exact",
    )
    safe = risk.achieved(sampled, tolerated)
    if safe >= experiment.confidence:
        return sampled, tolerated, []
    return sampled, tolerated, [unsafe(experiment, clients, safe)]


def unsafe(experiment: Experiment, clients: int, safe: float) -> str:
    """That a choice of n̂ and b̂ is not safe, in plain words."""
    return (
        f"Not safe: with {experiment.byzantine} bad clients of {clients}, sampling "
        f"{experiment.sampled} and tolerating {experiment.tolerated}, all {experiment.rounds} "
        f"rounds stay within what is tolerated with probability {percent(safe)} only (wanted "
        f"{percent(experiment.confidence)}). `fedro plan --clients {clients} --byzantine "
        f"{experiment.byzantine} --rounds {experiment.rounds}` says what would be safe."
    )


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


def _builder(name: str, federation: Federation, seed: int) -> Callable[[], nn.Module]:
    build(name, federation.shape, federation.classes, seed)  # errors now, not in a worker
    return lambda: build(name, federation.shape, federation.classes, seed)


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
    index = torch.from_numpy(dice.integers(0, len(examples.y), size=steps * size))
    drawn = (torch.index_select(part, 0, index) for part in examples)
    x, y = (part.view(steps, size, *part.shape[1:]) for part in drawn)
    return x, y
