"""What a run on Flower must remember, and its run folder."""

import json
import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedro.common.atomic_files import write_atomically
from fedro.flower.evaluation import Spread
from fedro.flower.layout import Layout
from fedro.flower.ledger import Ledger
from fedro.flower.sampling import Draw
from fedro.planning import Plan
from fedro.runs import RunFolder
from fedro.server import Round, State, summarize

MAY_DIFFER = ("rounds", "checkpoint_every", "evaluate_every")  # when a run is resumed


def new_seed() -> int:
    """A seed that nobody can guess: who knows it knows whom the server will invite."""
    return secrets.randbits(128)


@dataclass
class Session:
    """A run until now, and the round under way."""

    layout: Layout
    state: State
    seed: int
    ledger: Ledger = field(default_factory=Ledger)
    draws: int = 0  # void ones count: the plan is for so many, whatever comes of them
    fruitless: int = 0  # void rounds in a row
    available: int = 0  # nodes online
    draw: Draw | None = None
    invited: list[int] = field(default_factory=list)  # node ids
    evaluation: Draw | None = None
    evaluators: list[int] = field(default_factory=list)
    done: Round | None = None
    metrics: dict[str, dict[str, Spread]] = field(default_factory=dict)
    unevaluated: dict[str, dict[int, str]] = field(default_factory=dict)  # as in the ledger
    room: Tensor | None = None

    @property
    def under_way(self) -> Round:
        """The round that has begun."""
        if self.done is None:
            raise ValueError("no round has begun: configure_train comes first")
        return self.done

    def begin(self, round: int, model: Tensor, lr: object) -> Round:
        """Begin a round with this model."""
        self.state = replace(self.state, round=round, model=model)
        rate = float(lr) if isinstance(lr, (int, float)) else math.nan
        nobody = np.empty(0, dtype=np.int64)
        self.done = Round(round, rate, nobody, None, self.state)
        self.draw, self.evaluation = None, None
        self.invited, self.evaluators, self.metrics, self.unevaluated = [], [], {}, {}
        return self.done

    def end(self) -> None:
        """The round is over, and the next one follows on the model that it leaves."""
        done = self.under_way
        self.state = done.state = replace(done.state, round=done.round + 1)
        self.fruitless = 0 if done.void is None else self.fruitless + 1

    def updates(self, rows: int) -> Tensor:
        """The matrix of updates, allocated once."""
        if self.room is None or len(self.room) < rows:
            self.room = torch.empty((rows, self.layout.width), dtype=self.layout.dtype)
        return self.room[:rows]

    def scalars(self) -> dict[str, Any]:
        """What a checkpoint holds beside the state."""
        return {"seed": self.seed, "draws": self.draws, "ledger": self.ledger.as_dict()}

    def restore(self, state: State, scalars: Mapping[str, Any]) -> None:
        """Go back to what was saved."""
        self.state, self.ledger = state, Ledger.from_dict(scalars["ledger"])
        self.seed, self.draws = scalars["seed"], scalars["draws"]

    def line(self) -> dict[str, Any]:
        """The round under way as a line of rounds.jsonl; nobody here knows who is bad."""
        metrics = {
            kind: {name: spread._asdict() for name, spread in found.items()}
            for kind, found in self.metrics.items()
        }
        tolerated = None if self.draw is None else self.draw.tolerated
        told = {"available": self.available, "tolerated": tolerated, "metrics": metrics}
        return {**self.under_way.as_dict(), **told, **self._evaluated()}

    def _evaluated(self) -> dict[str, Any]:
        """Who was asked to evaluate, and who did not and why."""
        if not self.evaluators:
            return {}
        asked = [self.ledger.number(node) for node in self.evaluators]
        lost = {
            word: {str(number): why for number, why in reasons.items()}
            for word, reasons in self.unevaluated.items()
        }
        return {"evaluation": {"sampled": asked, **lost}}


class Book:
    """The run folder of a session; without a path, nothing is written."""

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
            self.folder = RunFolder.create(path, config, identity, keep=keep)
        try:
            self._start(self.folder)
        except BaseException:
            self.close()
            raise

    def _start(self, folder: RunFolder) -> None:
        if (latest := folder.latest()) is not None:
            state = State.from_tensors(latest.round, latest.tensors)
            self.session.restore(state, latest.scalars)
        else:  # the seed is kept from the first draw on: drawn again, a round is the same draw
            folder.checkpoint(0, self.session.state.tensors(), self.session.scalars())

    @property
    def finished(self) -> bool:
        """Whether the run was complete before."""
        return self.folder is not None and self.folder.finished

    def write(self, checkpoint: bool) -> None:
        """Write down the round that is over."""
        if self.folder is None:
            return
        self.folder.append(self.session.line())
        self._unsaved = (self.session.state, self.session.scalars())
        if checkpoint:
            self.save()

    def save(self) -> None:
        """Save the state after the last round that is written down."""
        if self.folder is not None and self._unsaved is not None:
            state, scalars = self._unsaved
            self.folder.checkpoint(state.round, state.tensors(), scalars)
            ledger = json.dumps(scalars["ledger"], indent=2) + "\n"
            write_atomically(self.folder.path / "ledger.json", ledger)
            self._unsaved = None

    def finish(self, plan: Plan) -> None:
        """Write the model and what the run came to; the seed is no secret any more."""
        self.save()
        if self.folder is None:
            return
        arrays = self.session.layout.ndarrays(self.session.state.model)
        tensors = {name: torch.tensor(value) for name, value in arrays.items()}
        summary = summarize(self.folder.rounds(), sampled=plan.sampled, tolerated=plan.tolerated)
        seed = str(self.session.seed)  # as text: JSON readers round large numbers
        self.folder.finish(tensors, {**summary, "seed": seed})

    def close(self) -> None:
        """Let other processes write."""
        if self.folder is not None:
            self.folder.close()
