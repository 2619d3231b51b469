"""FedRo as a strategy for Flower: invite n̂, trust none of the replies, take a robust step."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from logging import INFO, WARNING
from os import PathLike
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedro.common.checks import count, number
from fedro.common.text import counted
from fedro.flower.aggregating import take_metrics, take_updates
from fedro.flower.exchange import REAL, Clock, by_source, exchange, limit_retries
from fedro.flower.inviting import invite_to_evaluate, invite_to_train
from fedro.flower.layout import Layout
from fedro.flower.session import Book, Session, new_seed
from fedro.flower.settings import Order, Settings, checked_plan, checked_rule, configuration
from fedro.planning import Plan
from fedro.runs import RunFolderError
from fedro.server import Round, Score, State, timed

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


class TooFewRepliesError(RuntimeError):
    """Several rounds in a row could not be used."""


class FedRo(Strategy):
    """Federated averaging that b̂ bad clients of the n̂ invited cannot bend.

    Clients return their new weights under "arrays", as with Flower's own strategies. They find the
    round under "server-round" in the config record and, where given here, γ_c and K under "lr" and
    "local-steps".

    `folder` is a run folder with `keep_checkpoints` of its checkpoints, to which `fedro rollback`
    can go back; with `resume`, a run that is in it goes on. `seed` is secret, from the
    operating system, until the run ends; give one only for tests. `evaluate_clients` nodes (n̂; 0
    for none) evaluate the model every `evaluate_every` rounds. After `patience` void rounds in a
    row the run ends. `online_wait` is how many seconds to wait where too few nodes are online,
    `quarantine` after how many rejected replies a node is not invited again; `statistics` names the
    arrays that are no parameters (those of BatchNorm are known). `order(grid, nodes)` puts nodes in
    an order that is the same in each run, for simulations that can be repeated.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        rule: str = "nnm | trimmed_mean",
        server_lr: float = 1.0,
        client_lr: float | str | list[tuple[int, float]] | None = None,
        local_steps: int | None = None,
        folder: str | PathLike[str] | None = None,
        resume: bool = False,
        seed: int | None = None,
        evaluate_every: int = 1,
        evaluate_clients: int | None = None,
        checkpoint_every: int = 1,
        keep_checkpoints: int = 2,
        patience: int = 3,
        online_wait: float = 60.0,
        quarantine: int | None = None,
        statistics: Collection[str] | None = None,
        order: Order | None = None,
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        clock: Clock = REAL,
    ) -> None:
        plan = checked_plan(plan)
        evaluators = plan.sampled if evaluate_clients is None else evaluate_clients
        self.settings = Settings(
            plan=plan,
            rule=checked_rule(rule, plan),
            config=configuration(
                plan,
                seed,
                rule=rule,
                server_lr=server_lr,
                client_lr=client_lr,
                local_steps=local_steps,
                evaluate_every=evaluate_every,
                checkpoint_every=checkpoint_every,
            ),
            folder=None if folder is None else Path(folder),
            resume=resume,
            keep_checkpoints=count("keep_checkpoints", keep_checkpoints, 2),
            seed=seed,
            evaluate_clients=count("evaluate_clients", evaluators, 0),
            patience=count("patience", patience, 1),
            online_wait=number("online_wait", online_wait, "online_wait ≥ 0", lambda x: x >= 0),
            quarantine=None if quarantine is None else count("quarantine", quarantine, 1),
            statistics=statistics,
            order=order,
            arrays_key=arrayrecord_key,
            config_key=configrecord_key,
            clock=clock,
        )
        self.session: Session | None = None
        self._last: int | None = None  # round, which is always evaluated

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Invite n̂ of the nodes that are online; nobody, if that is not safe with so few."""
        session = self._session(arrays)
        return invite_to_train(self.settings, session, server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Screen the replies and step; no arrays if the round is void."""
        return take_updates(self.settings, self._begun(), by_source(replies))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Have some nodes evaluate the model, when it is time."""
        s, session = self.settings, self._session(arrays)
        due = server_round % s.config["evaluate_every"] == 0 or server_round == self._last
        if not (due and s.evaluate_clients):
            return []
        return invite_to_evaluate(s, session, server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """What the replies claim, without the b̂ lowest and highest of each metric."""
        return take_metrics(self._begun(), by_source(replies))

    def summary(self) -> None:
        """Tell the plan and the rule."""
        s, plan = self.settings, self.settings.plan
        log(INFO, "\t├──> Plan: of %d clients %d may be bad", plan.clients, plan.byzantine)
        log(INFO, "\t│\t└── each round invites %d, tolerates %d", plan.sampled, plan.tolerated)
        log(INFO, "\t├──> Rule: %s, server learning rate %g", s.rule, s.server_lr)
        log(INFO, "\t├──> Run folder: %s", s.folder or "none")
        log(INFO, "\t└──> Records: '%s' and '%s'", s.arrays_key, s.config_key)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
    ) -> Result:
        """Run all rounds, or those that are left; `timeout` bounds each wait for replies."""
        s, began = self.settings, time.time()
        number("timeout", timeout, "timeout > 0, in seconds", lambda x: x > 0)
        count("num_rounds", num_rounds, 1, s.plan.setting.draws, "draws that the plan is for")
        self.session, self._last = None, num_rounds
        session = self._session(initial_arrays)
        limit_retries(grid)
        log(INFO, "Starting FedRo: %s", counted(num_rounds, "round"))
        self.summary()
        config = {**s.config, "rounds": num_rounds}
        book = Book(s.folder, session, config, s.resume, s.keep_checkpoints)
        result = Result(arrays=session.layout.record(session.state.model))
        try:
            if not book.finished:
                self._rounds(
                    grid, result, book, timeout, train_config, evaluate_config, evaluate_fn
                )
                book.finish(s.plan)
        except BaseException as error:
            if not isinstance(error, RunFolderError):
                book.save()
            raise
        finally:
            book.close()
        tell_end(session, time.time() - began)
        return result

    def _rounds(
        self,
        grid: Grid,
        result: Result,
        book: Book,
        timeout: float,
        train_config: ConfigRecord | None,
        evaluate_config: ConfigRecord | None,
        evaluate_fn: EvaluateFn | None,
    ) -> None:
        s, session, last = self.settings, self._begun(), self._last or 0
        before = evaluate_fn(0, result.arrays) if evaluate_fn and not session.state.round else None
        if before is not None:
            result.evaluate_metrics_serverapp[0] = before
        for server_round in range(session.state.round + 1, last + 1):
            log(INFO, "")
            log(INFO, "[ROUND %d/%d]", server_round, last)
            self._train(grid, result, server_round, timeout, train_config)
            self._evaluate(grid, result, server_round, timeout, evaluate_config)
            self._evaluate_here(result, server_round, evaluate_fn)
            due = server_round % s.config["checkpoint_every"] == 0
            book.write(checkpoint=due or server_round == last)
            check_patience(session, s.patience, book)

    def _train(
        self,
        grid: Grid,
        result: Result,
        server_round: int,
        timeout: float,
        config: ConfigRecord | None,
    ) -> None:
        sent = self.configure_train(server_round, result.arrays, config or ConfigRecord(), grid)
        answers = exchange(grid, sent, timeout, self.settings.clock)
        arrays, metrics = take_updates(self.settings, self._begun(), answers)
        if arrays is not None:
            result.arrays = arrays
        if metrics is not None:
            result.train_metrics_clientapp[server_round] = metrics

    def _evaluate(
        self,
        grid: Grid,
        result: Result,
        server_round: int,
        timeout: float,
        config: ConfigRecord | None,
    ) -> None:
        session = self._begun()
        with timed(session.under_way, "evaluate"):
            sent = self.configure_evaluate(
                server_round, result.arrays, config or ConfigRecord(), grid
            )
            answers = exchange(grid, sent, timeout, self.settings.clock)
            metrics = take_metrics(session, answers)
        if metrics is not None:
            result.evaluate_metrics_clientapp[server_round] = metrics
            each = {name: spread.value for name, spread in session.metrics["evaluate"].items()}
            session.under_way.score = score_of(each, own=False)

    def _evaluate_here(
        self, result: Result, server_round: int, evaluate_fn: EvaluateFn | None
    ) -> None:
        """With the server's own data, if there are any: these results count more."""
        metrics = None if evaluate_fn is None else evaluate_fn(server_round, result.arrays)
        if metrics is not None:
            log(INFO, "Evaluation at the server: %s", metrics)
            result.evaluate_metrics_serverapp[server_round] = metrics
            numbers = {k: float(v) for k, v in metrics.items() if isinstance(v, (int, float))}
            self._begun().under_way.score = score_of(numbers, own=True)

    def _session(self, arrays: ArrayRecord) -> Session:
        if self.session is None:
            layout = Layout(arrays, self.settings.statistics)
            seed = new_seed() if self.settings.seed is None else self.settings.seed
            self.session = Session(layout, State(0, layout.vector(arrays)), seed)
        return self.session

    def _begun(self) -> Session:
        if self.session is None:
            raise ValueError("no round has begun: configure_train comes first")
        return self.session


def check_patience(session: Session, patience: int, book: Book) -> None:
    """Raise after too many void rounds in a row."""
    if session.fruitless < patience:
        return
    done: Round = session.under_way
    reasons = Counter([*done.missing.values(), *done.rejected.values()]).most_common(3)
    seen = "; ".join(f"{times}× {reason}" for reason, times in reasons)
    resume = "" if book.folder is None else f" The run is saved in {book.folder.path}: resume it."
    raise TooFewRepliesError(
        f"{counted(patience, 'round')} in a row could not be used, so the run ends. The last: "
        f"{done.void}." + (f" Replies lost in it: {seen}." if seen else "") + resume
    )


def score_of(metrics: Mapping[str, float], *, own: bool) -> Score | None:
    """Loss and accuracy, by names like "eval_loss" and "accuracy": of all, or a mean client's."""
    loss = next((value for name, value in metrics.items() if "loss" in name.lower()), None)
    accuracy = next((value for name, value in metrics.items() if "acc" in name.lower()), None)
    if loss is None and accuracy is None:
        return None
    known = float("nan") if loss is None else loss
    return Score(known, accuracy if own else None, None if own else accuracy, None)


def tell_end(session: Session, seconds: float) -> None:
    """Tell the seed, a secret until now, and which nodes sent what could not be used."""
    log(INFO, "FedRo finished in %.1f s. The seed of its draws was %d", seconds, session.seed)
    for node, entry in session.ledger.entries.items():
        if entry.rejected:
            why = "; ".join(f"{times}× {reason}" for reason, times in entry.rejected.items())
            text = "Node %d (client %d): %d of %d replies rejected: %s"
            log(WARNING, text, node, entry.number, entry.refusals, entry.invited, why)
