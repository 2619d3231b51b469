"""What a run on Flower remembers from round to round, and how it is written to its run folder."""

import json
import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedro.common.atomic_files import write_atomically
from fedro.flower.crash_record import DRAWS_FILE, READING_FILE, DrawLog, ReadingNote
from fedro.flower.layout import ArrayLayout
from fedro.flower.ledger import Ledger
from fedro.flower.replies import Received
from fedro.planning import Plan
from fedro.rules import Rule
from fedro.runs import RunFolder
from fedro.server import Round, State, summarize

if TYPE_CHECKING:
    from fedro.flower.aggregation import RobustMean

MAY_DIFFER = ("rounds", "checkpoint_every", "evaluate_every")  # when a run is resumed


class Draw(NamedTuple):
    """How many of the nodes online are invited, and how many Byzantine ones are tolerated."""

    available: int
    sampled: int
    tolerated: int


def new_seed() -> int:
    """A secret seed: anyone who knows it knows which nodes the server will invite."""
    return secrets.randbits(128)


@dataclass
class Session:
    """The state of a run, and the round that is going on.

    Attributes:
        layout: Where the model's arrays are in the flat vector.
        state: The state before the current round.
        seed: The seed of all draws.
        ledger: What each node did until now.
        draw_log: All draws until now. Void rounds count, because the plan counts draws.
        reading: The note of whose reply is being read, for the case of a crash.
        void_rounds: The number of void rounds in a row.
        available: The number of nodes online.
        draw: The draw of the current round, or None if no draw is safe.
        invited: The ids of the nodes that are invited to train.
        evaluation_draw: The draw of the current round's evaluation, if there is one.
        evaluators: The ids of the nodes that are invited to evaluate.
        received: What has become of the invitations to train in the current round.
        round_: The current round.
        metrics: The clients' metrics in the current round, for "train" and "evaluate".
        lost_evaluations: The reasons why evaluations are "missing" or "rejected", by the nodes'
            numbers in the ledger.
    """

    layout: ArrayLayout
    state: State
    seed: int
    ledger: Ledger = field(default_factory=Ledger)
    draw_log: DrawLog = field(default_factory=DrawLog)
    reading: ReadingNote = field(default_factory=ReadingNote)
    void_rounds: int = 0
    available: int = 0
    draw: Draw | None = None
    invited: list[int] = field(default_factory=list)
    evaluation_draw: Draw | None = None
    evaluators: list[int] = field(default_factory=list)
    received: Received = field(default_factory=lambda: Received([]))
    round_: Round | None = None
    metrics: dict[str, dict[str, "RobustMean"]] = field(default_factory=dict)
    lost_evaluations: dict[str, dict[int, str]] = field(default_factory=dict)
    _updates: Tensor | None = None

    @property
    def draws(self) -> int:
        """The number of draws until now."""
        return len(self.draw_log)

    @property
    def current_round(self) -> Round:
        """The round that has begun."""
        if self.round_ is None:
            raise ValueError("no round has begun: configure_train comes first")
        return self.round_

    def begin_round(self, round: int, model: Tensor, lr: object) -> Round:
        """Begin a round with this model."""
        self.state = replace(self.state, round=round, model=model)
        rate = float(lr) if isinstance(lr, (int, float)) else math.nan
        nobody = np.empty(0, dtype=np.int64)
        self.round_ = Round(round, rate, nobody, None, self.state)
        self.draw, self.evaluation_draw = None, None
        self.invited, self.evaluators, self.metrics, self.lost_evaluations = [], [], {}, {}
        self.received = Received(self.invited)
        self.reading.begin_round(round)
        return self.round_

    def end_round(self) -> None:
        """End the round; the next one starts with the model that this one leaves."""
        round_ = self.current_round
        self.state = round_.state = replace(round_.state, round=round_.round + 1)
        self.void_rounds = 0 if round_.void is None else self.void_rounds + 1

    def updates(self, rows: int) -> Tensor:
        """The matrix of updates. It is allocated once."""
        if self._updates is None or len(self._updates) < rows:
            self._updates = torch.empty((rows, self.layout.width), dtype=self.layout.dtype)
        return self._updates[:rows]

    def scalars(self) -> dict[str, Any]:
        """What a checkpoint holds besides the state."""
        return {"seed": self.seed, "ledger": self.ledger.as_dict()}

    def restore(self, state: State, scalars: Mapping[str, Any]) -> None:
        """Restore what a checkpoint holds."""
        self.state, self.ledger = state, Ledger.from_dict(scalars["ledger"])
        self.seed = scalars["seed"]

    def line(self) -> dict[str, Any]:
        """The current round as a line of rounds.jsonl. Who is Byzantine is not known."""
        metrics = {
            kind: {name: mean._asdict() for name, mean in means.items()}
            for kind, means in self.metrics.items()
        }
        tolerated = None if self.draw is None else self.draw.tolerated
        more = {"available": self.available, "tolerated": tolerated, "metrics": metrics}
        return {**self.current_round.as_dict(), **more, **self._evaluation_line()}

    def _evaluation_line(self) -> dict[str, Any]:
        """Who was invited to evaluate, whose evaluation was lost, and why."""
        if not self.evaluators:
            return {}
        sampled = [self.ledger.number(node) for node in self.evaluators]
        lost = {
            outcome: {str(number): reason for number, reason in reasons.items()}
            for outcome, reasons in self.lost_evaluations.items()
        }
        return {"evaluation": {"sampled": sampled, **lost}}


class SessionRecorder:
    """Writes a session to its run folder, and restores it. Without a path, it writes nothing."""

    def __init__(
        self,
        path: Path | None,
        session: Session,
        config: Mapping[str, Any],
        resume: bool,
        keep: int,
    ) -> None:
        self.session, self.folder = session, None
        self._unsaved: tuple[State, dict[str, Any]] | None = None
        if path is None:
            return
        plan = {key: config[key] for key in ("sampled", "tolerated")}
        identity = {"model": session.layout.fingerprint, **plan}
        if resume and (path / "run.json").exists():
            self.folder = RunFolder.resume(path, config, identity, may_differ=MAY_DIFFER, keep=keep)
        else:
            if not (path / "run.json").exists():
                for name in (DRAWS_FILE, READING_FILE):  # of an older run that was deleted
                    (path / name).unlink(missing_ok=True)
            self.folder = RunFolder.create(path, config, identity, keep=keep)
        try:
            self._start(self.folder)
        except BaseException:
            self.close()
            raise

    def _start(self, folder: RunFolder) -> None:
        self.session.draw_log = DrawLog(folder.path / DRAWS_FILE)
        self.session.reading = ReadingNote(folder.path / READING_FILE)
        if (latest := folder.latest()) is not None:
            state = State.from_tensors(latest.round, latest.tensors)
            self.session.restore(state, latest.scalars)
        else:  # saves the seed before the first draw, so that a resumed run repeats its draws
            folder.checkpoint(0, self.session.state.tensors(), self.session.scalars())

    @property
    def finished(self) -> bool:
        """Whether the run folder holds a complete run."""
        return self.folder is not None and self.folder.finished

    def rounds(self) -> list[dict[str, Any]]:
        """The lines of the rounds before."""
        return [] if self.folder is None else self.folder.rounds()

    def write(self, checkpoint: bool) -> None:
        """Record the round that has just ended."""
        if self.folder is None:
            return
        self.folder.append(self.session.line())
        self._unsaved = (self.session.state, self.session.scalars())
        if checkpoint:
            self.save()

    def save(self) -> None:
        """Save a checkpoint after the last recorded round."""
        if self.folder is not None and self._unsaved is not None:
            state, scalars = self._unsaved
            self.folder.checkpoint(state.round, state.tensors(), scalars)
            ledger = json.dumps(scalars["ledger"], indent=2) + "\n"
            write_atomically(self.folder.path / "ledger.json", ledger)
            self.session.reading.forget_before(state.round)
            self._unsaved = None

    def finish(self, plan: Plan, rule: Rule, server_lr: float) -> str | None:
        """Write the model and the summary. The summary has the seed, which is no longer secret.

        Returns:
            Why the run has failed although it is complete, or None.
        """
        self.save()
        if self.folder is None:
            return None
        arrays = self.session.layout.ndarrays(self.session.state.model)
        tensors = {name: torch.tensor(value) for name, value in arrays.items()}
        summary = summarize(
            self.folder.rounds(),
            sampled=plan.sampled,
            tolerated=plan.tolerated,
            rule=rule,
            server_lr=server_lr,
        )
        seed = str(self.session.seed)  # as text: JSON readers round large numbers
        self.folder.finish(tensors, {**summary, "seed": seed})
        problem: str | None = summary["problem"]
        return problem

    def close(self) -> None:
        """Release the lock of the run folder."""
        if self.folder is not None:
            self.folder.close()
