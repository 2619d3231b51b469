"""The setup of a run: an experiment with its data, model, rule and attack, ready to train."""

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

from fedro.attacks import Attack
from fedro.common.streams import stream
from fedro.common.text import counted
from fedro.data import Examples, Federation
from fedro.models import FlatModel
from fedro.rules import Rule
from fedro.server import State
from fedro.simulation import engines
from fedro.simulation.client import LocalTraining
from fedro.simulation.experiment import Experiment, ExperimentError


@dataclass(frozen=True)
class Setup:
    """Everything that a run needs and that stays the same in all rounds. `prepare` makes it."""

    experiment: Experiment
    federation: Federation
    build: Callable[[], nn.Module]
    model_name: str | None  # None for a module that was given as an object
    rule: Rule
    attack: Attack
    sampled: int
    tolerated: int
    root: Examples | None
    warnings: tuple[str, ...]  # to show before the run starts
    given: Experiment  # the experiment before `prepare` changed any key of it

    @property
    def changed_keys(self) -> dict[str, Any]:
        """The given values of the keys that `prepare` changed."""
        used = self.experiment.as_dict()
        return {key: value for key, value in self.given.as_dict().items() if used[key] != value}

    @cached_property
    def flat(self) -> FlatModel:
        """The model as one vector."""
        return FlatModel(self.build(), self.device, self.model_name)

    @cached_property
    def start(self) -> Tensor:
        """The model before the first round (width,)."""
        return FlatModel(self.build(), self.device, self.model_name).vector

    def module(self, state: State) -> nn.Module:
        """The module with the model of a state: the run's output, or the model so far."""
        module = self.build()
        module.load_state_dict(self.flat.tensors(state.output))
        return module

    @cached_property
    def byzantine(self) -> NDArray[np.bool_]:
        """Which clients are Byzantine (n,), drawn from the seed."""
        n, bad = self.federation.clients, self.experiment.byzantine
        mask = np.zeros(n, dtype=bool)
        mask[stream(self.experiment.seed, "byzantine").choice(n, size=bad, replace=False)] = True
        return mask

    @cached_property
    def device(self) -> str:
        """The device to train on."""
        name, gpus = self.experiment.device, torch.cuda.device_count()
        if name == "auto":
            return "cuda" if gpus else "cpu"
        if name == "cpu" or (gpus and name == "cuda") or name in [f"cuda:{i}" for i in range(gpus)]:
            return name
        seen = f"PyTorch sees {counted(gpus, 'CUDA device')} here"
        raise ExperimentError(f"device={name!r}: use 'auto', 'cpu', 'cuda' or 'cuda:0'; {seen}")

    @cached_property
    def engine_kind(self) -> str:
        """The kind of engine that trains the clients."""
        by_name = self.model_name is not None and not self.model_name.startswith("__main__:")
        kind = engines.choose_engine(self.experiment.engine, self.flat, self.device, by_name)
        if kind != "batched":
            return kind
        if (reason := engines.why_not_batched(self.engine_config())) is None:
            return kind
        if self.experiment.engine == "batched":
            raise ExperimentError(f"engine='batched' cannot train this model: {reason}")
        return engines.choose_engine("auto", self.flat, self.device, by_name, batched=False)

    @cached_property
    def local_training(self) -> LocalTraining:
        """The configuration of local training."""
        shift, scale = (
            torch.as_tensor(value, dtype=torch.float32, device=self.device)
            for value in (self.federation.shift, self.federation.scale)
        )
        e = self.experiment
        return LocalTraining(self.federation.task, e.momentum, e.l2, e.precision, shift, scale)

    def make_engine(self) -> engines.Engine:
        """An engine with a row for each sampled client, and one for the server's own update."""
        return engines.make_engine(self.engine_kind, self.engine_config())

    def engine_config(self) -> engines.EngineConfig:
        """What the engine needs to know."""
        x, y = self.federation.train(0)
        return engines.EngineConfig(
            build=self.build,
            training=self.local_training,
            rows=self.sampled + (self.root is not None),
            steps=self.experiment.local_steps,
            batch=self.experiment.batch_size,
            example=(x[0], y[0]),
            model=self.model_name,
            shape=self.federation.shape,
            classes=output_size(self.federation),
            seed=self.experiment.seed,
            device=self.device,
            workers=self.experiment.workers,
        )

    @cached_property
    def test(self) -> tuple[Examples, NDArray[np.int64]]:
        """The honest clients' test examples, and the owner of each as an index."""
        honest = np.flatnonzero(~self.byzantine)
        parts = [self.federation.test(int(client)) for client in honest]
        owners = np.repeat(np.arange(len(honest)), [len(part.y) for part in parts])
        if not owners.size:
            raise ExperimentError("no honest client has test data: nothing could be evaluated")
        joined = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        return Examples(*joined), owners

    @cached_property
    def triggered(self) -> Examples | None:
        """The test examples with the attack's trigger; None if the attack opens no backdoor."""
        examples = self.attack.triggered(self.test[0], self.federation.classes)
        return examples if examples is not None and len(examples.y) else None

    def fingerprint(self) -> dict[str, Any]:
        """What must be equal for the same bits: a run is resumed only with this fingerprint."""
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
            "group": engines.GROUP_SIZE if self.engine_kind == "batched" else None,
            "threads": torch.get_num_threads() if inline else None,
            "model": f"{self.model_name or 'an object'}, {checksum(self.start.cpu().numpy())}",
            "data": f"{data.name}, {checksum(*counts)}",
            "sampled": self.sampled,
            "tolerated": self.tolerated,
        }


def checksum(*arrays: NDArray[Any]) -> str:
    """A short checksum of the contents of some arrays."""
    digest = blake2b(digest_size=8)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def output_size(federation: Federation) -> int:
    """How many numbers a model gives for an example: one per class, or those of the target."""
    return federation.classes or max(1, math.prod(federation.train(0).y.shape[1:]))


def draw_batches(
    examples: Examples, rng: np.random.Generator, steps: int, size: int
) -> tuple[Tensor, Tensor]:
    """K batches of B examples, i.i.d. with replacement: x (K, B, …) and y (K, B)."""
    index = rng.integers(0, len(examples.y), size=(steps, size))
    x, y = (torch.from_numpy(part.numpy().take(index, axis=0)) for part in examples)
    return x, y
