"""`State`, which a run keeps from one round to the next, and `Round`, its report on one round."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedro.server.evidence import Evidence, RowFacts
from fedro.server.scores import Ids, Score


@dataclass(frozen=True)
class State:
    """Everything that a run must remember from one round to the next.

    Attributes:
        round: The next round, counted from 0.
        model: The flat model (width,): parameters first, then statistics.
        previous: The last aggregate, for rules that start from it.
        memory: What the attackers remember, in a simulation.
        chosen: The random iterate that the run returns, once its round has passed.
        evidence: What the rounds have shown of each client.

    Example:
        >>> import torch
        >>> state = State(round=3, model=torch.zeros(2))
        >>> State.from_tensors(3, state.tensors()).output
        tensor([0., 0.])
    """

    round: int
    model: Tensor
    previous: Tensor | None = None
    memory: Mapping[str, Tensor] = field(default_factory=dict)
    chosen: Tensor | None = None
    evidence: Evidence = field(default_factory=Evidence)

    @property
    def output(self) -> Tensor:
        """The model that the run returns: the random iterate if one was drawn, else the last."""
        return self.model if self.chosen is None else self.chosen

    def tensors(self) -> dict[str, Tensor]:
        """The state as named tensors for a checkpoint. `from_tensors` reads them back."""
        named = {"model": self.model, "previous": self.previous, "chosen": self.chosen}
        kept = {name: tensor for name, tensor in named.items() if tensor is not None}
        memory = {f"memory.{name}": tensor for name, tensor in self.memory.items()}
        evidence = {f"evidence.{name}": t for name, t in self.evidence.tensors().items()}
        return kept | memory | evidence

    @classmethod
    def from_tensors(cls, round: int, tensors: Mapping[str, Tensor]) -> "State":
        """The state that `tensors` saved.

        Args:
            round: The next round of the saved state.
            tensors: The named tensors of a checkpoint.

        Returns:
            The state, with the same tensors.

        Raises:
            ValueError: If there is no model among the tensors.
        """
        if "model" not in tensors:
            raise ValueError(f"a checkpoint without a model: it has {', '.join(tensors) or 'none'}")
        memory, evidence = (
            {
                name.removeprefix(prefix): tensor
                for name, tensor in tensors.items()
                if name.startswith(prefix)
            }
            for prefix in ("memory.", "evidence.")
        )
        return cls(
            round,
            tensors["model"],
            tensors.get("previous"),
            memory,
            tensors.get("chosen"),
            Evidence.from_tensors(evidence),
        )


@dataclass
class Round:
    """What happened in one round. It never holds the matrix of updates.

    `fedro.run` yields one for each round. In a deployment nobody knows who is Byzantine, so the
    fields that depend on it are None.

    Attributes:
        round: The number of the round, counted from 0.
        lr: The client learning rate γ_c of this round.
        sampled: The ids of the invited clients.
        byzantine: The ids of the Byzantine clients among them.
        state: The state after the round. `state.model` is the flat model.
        missing: The clients without a reply, with the reason.
        rejected: The clients whose reply failed a check, with the reason.
        excluded: The clients whose update was left out because of the evidence, with the reason.
        evidence: What the round shows of the clients whose updates arrived.
        suspects: The clients that are flagged after this round.
        void: The reason why the round left the model unchanged, or None.
        takeover: Whether the attackers replaced the model after an overrun.
        attack: The attack that was used, if several were tried.
        train_loss: The mean loss of the honest clients in local training.
        diverged: The number of honest clients whose loss became NaN or Inf in local training.
        error: ‖A − mean of the honest updates‖², the squared error of the aggregate A.
        variance: The variance of the honest updates.
        kappa_seen: error / variance.
        kappa_proved: The proved upper bound on it, or None if there is none for the rule.
        score: The score of the model after this round, if it was evaluated.
        final: The score of the run's output, after the last round.
        problem: In the last round, why the run has failed although it is complete; None if it has
            not. For example, the last ten rounds were void because the learning rate is too large.
        seconds: How long each part of the round took.

    Example:
        >>> import fedro
        >>> for round_ in fedro.run(fedro.Experiment(rounds=2)):  # doctest: +SKIP
        ...     print(round_.round, round_.train_loss, round_.void)
    """

    round: int
    lr: float
    sampled: Ids
    byzantine: Ids | None
    state: State = field(repr=False)
    missing: dict[int, str] = field(default_factory=dict)
    rejected: dict[int, str] = field(default_factory=dict)
    excluded: dict[int, str] = field(default_factory=dict)
    evidence: RowFacts | None = field(default=None, repr=False)
    suspects: list[int] = field(default_factory=list)
    void: str | None = None
    takeover: bool | None = None
    attack: str | None = None
    train_loss: float | None = None
    diverged: int | None = None
    error: float | None = None
    variance: float | None = None
    kappa_seen: float | None = None
    kappa_proved: float | None = None
    score: Score | None = None
    final: Score | None = None
    problem: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The round as one line of rounds.jsonl."""
        only_if_known = ("score", "final", "problem")
        line = {k: v for k, v in vars(self).items() if k not in ("state", *only_if_known)}
        line["sampled"] = self.sampled.tolist()
        line["byzantine"] = None if self.byzantine is None else self.byzantine.tolist()
        line["evidence"] = None if self.evidence is None else self.evidence.as_dict()
        for key in ("missing", "rejected", "excluded"):
            line[key] = {str(client): reason for client, reason in line[key].items()}
        for name, score in (("score", self.score), ("final", self.final)):
            if score is not None:
                line[name] = score._asdict()
        if self.problem is not None:
            line["problem"] = self.problem
        return line


@contextmanager
def timed(round_: Round, part: str) -> Iterator[None]:
    """Record how many seconds the block takes, as one part of the round."""
    start = time.perf_counter()
    yield
    round_.seconds[part] = time.perf_counter() - start
