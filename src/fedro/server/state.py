"""What a run remembers from one round to the next, and what it reports about each round."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedro.server.scores import Score

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class State:
    """Everything that a run must remember from one round to the next."""

    round: int  # the next round
    model: Tensor  # (width,): parameters, then statistics
    previous: Tensor | None = None  # the last aggregate, for rules that start from it
    memory: Mapping[str, Tensor] = field(default_factory=dict)  # what the attackers remember
    chosen: Tensor | None = None  # the randomly drawn iterate, once its round has passed

    @property
    def output(self) -> Tensor:
        """The model that the run returns: the random iterate if one was drawn, else the last."""
        return self.model if self.chosen is None else self.chosen

    def tensors(self) -> dict[str, Tensor]:
        """The state as named tensors, for a checkpoint; `from_tensors` reads them back."""
        named = {"model": self.model, "previous": self.previous, "chosen": self.chosen}
        kept = {name: tensor for name, tensor in named.items() if tensor is not None}
        return kept | {f"memory.{name}": tensor for name, tensor in self.memory.items()}

    @classmethod
    def from_tensors(cls, round: int, tensors: Mapping[str, Tensor]) -> "State":
        """The state that `tensors` saved before this round."""
        if "model" not in tensors:
            raise ValueError(f"a checkpoint without a model: it has {', '.join(tensors) or 'none'}")
        memory = {
            name.removeprefix("memory."): tensor
            for name, tensor in tensors.items()
            if name.startswith("memory.")
        }
        rest = {name: tensors.get(name) for name in ("previous", "chosen")}
        return cls(round, tensors["model"], memory=memory, **rest)


@dataclass
class Round:
    """What happened in one round. It never holds the matrix of updates.

    In a deployment nobody knows who is Byzantine, so the fields that depend on it are None.
    """

    round: int
    lr: float
    sampled: Ids  # ids of the invited clients
    byzantine: Ids | None  # the Byzantine ones among them
    state: State = field(repr=False)  # after the round
    missing: dict[int, str] = field(default_factory=dict)  # client id: reason
    rejected: dict[int, str] = field(default_factory=dict)  # client id: reason
    void: str | None = None  # why the model did not change, if it did not
    takeover: bool | None = None  # whether the attackers replaced the model
    attack: str | None = None  # the attack that was used, where several were tried
    train_loss: float | None = None
    error: float | None = None  # ‖A − mean of honest‖²
    variance: float | None = None  # of the honest updates
    kappa_seen: float | None = None
    kappa_proved: float | None = None
    score: Score | None = None  # of the model after the round, if it was evaluated
    final: Score | None = None  # of the run's output, after the last round
    seconds: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The round as one line of rounds.jsonl."""
        line = {k: v for k, v in vars(self).items() if k not in ("state", "score", "final")}
        line["sampled"] = self.sampled.tolist()
        line["byzantine"] = None if self.byzantine is None else self.byzantine.tolist()
        for key in ("missing", "rejected"):
            line[key] = {str(client): reason for client, reason in line[key].items()}
        for name, score in (("score", self.score), ("final", self.final)):
            if score is not None:
                line[name] = score._asdict()
        return line


@contextmanager
def timed(round_: Round, part: str) -> Iterator[None]:
    """Record how many seconds the block takes, as one part of the round."""
    start = time.perf_counter()
    yield
    round_.seconds[part] = time.perf_counter() - start
