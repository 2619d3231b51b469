"""FedRo as a strategy for Flower: invite n̂ nodes, check their replies, take a robust step."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext
from logging import INFO, WARNING
from os import PathLike
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedro.common.checks import count, number
from fedro.common.text import counted
from fedro.common.user_code import UserCode, UserCodeError, during
from fedro.flower.aggregation import aggregate_evaluations, aggregate_updates, restore_metrics
from fedro.flower.internals import PARALLEL_DOWNLOADS, is_deployment, limit_retries
from fedro.flower.invitations import invite_to_evaluate, invite_to_train
from fedro.flower.layout import ArrayLayout
from fedro.flower.memory_limit import memory_limit
from fedro.flower.messaging import (
    SYSTEM_CLOCK,
    Clock,
    NodeReply,
    ReplyLimits,
    by_claimed_source,
    one_line,
    send_and_collect,
)
from fedro.flower.prometheus import RunMetrics, checked_port, serving
from fedro.flower.run_log import log_end, log_start, log_summary
from fedro.flower.session import Session, SessionRecorder, new_seed
from fedro.flower.settings import (
    Order,
    StrategySettings,
    checked_plan,
    checked_quorum,
    checked_rule,
    configuration,
)
from fedro.planning import Plan
from fedro.rules import Rule
from fedro.runs import RunFolderError
from fedro.server import DEFAULT_FDR, Score, State, timed

BYTES_IN_MEMORY = 4  # for each byte of a reply, while it is downloaded and put together
EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]


class TooFewRepliesError(RuntimeError):
    """Too many rounds in a row were void, so the run has ended.

    The message says why the last round was void. If the run has a folder, it can be resumed.
    """


class FedRo(Strategy):
    """A Flower strategy that averages robustly: b̂ Byzantine clients among n̂ cannot bend the model.

    Each round, the strategy invites n̂ random nodes, checks their replies, and aggregates the usable
    ones with a robust rule. A rejected or missing reply reduces the number of updates, never the
    tolerance b̂. If at most 2b̂ replies are usable, the round is void and the model stays as it is.

    Clients return their new weights under "arrays", as with Flower's own strategies. Their config
    record has the round under "server-round" and, if given here, γ_c under "lr" and K under
    "local-steps".

    Args:
        plan: The result of `fedro.plan`. It says how many nodes to invite and to tolerate.
        rule: The rule that aggregates, as text like "nnm | trimmed_mean" or as a `Rule` object; by
            default the plan's. A plan for another rule is refused. The rule must not need data of
            the server, and must not name b, because the plan does.
        server_lr: γ_s, the factor with which the server applies the aggregate.
        client_lr: γ_c, which clients find in their config record: a number, a text like "1/K", or a
            schedule like [(0, 0.1), (300, 0.02)]. Without it, the app chooses its own.
        local_steps: K, which clients find in their config record. Without it, the app chooses.
        folder: The run folder for rounds, checkpoints and the model. None: nothing is written.
        resume: Whether to continue the run in `folder`, if there is one.
        seed: The seed of the draws. By default it is secret: it comes from the operating system
            and is logged when the run ends. Give one only in tests and simulations.
        evaluate_every: Rounds between evaluations by clients. The last round is always evaluated.
        evaluate_clients: How many nodes evaluate the model; n̂ by default, 0 for none.
        checkpoint_every: Rounds between checkpoints.
        keep_checkpoints: How many checkpoints to keep for `fedro rollback`, at least 2.
        max_void_rounds: End the run after this many void rounds in a row.
        online_wait: How many seconds to wait if too few nodes are online.
        quarantine: Stop inviting a node after this many rejected replies. None: never.
        exclude: "evidence" leaves out copies of other updates, and the updates of nodes that are
            suspect after the rounds before. The tolerance b̂ stays the same.
        fdr: The rate of false discoveries at which nodes are flagged as suspects.
        quorum: The number of usable replies with which a round goes on once `quorum_after` seconds
            have passed, more than 2b̂ and at most n̂. Later replies count as missing. By default the
            server waits for all until the timeout.
        quorum_after: How many seconds the server waits for all replies if there is a quorum.
        flat: Whether to send the model as one array. The client app must then use the mod
            `fedro.flower.flat_arrays`. Use it for models of many arrays, which otherwise make
            Flower's server slow or lose replies.
        statistics: The names of the arrays that are statistics and not parameters. By default
            these are the running means and variances of BatchNorm, known by their names.
        order: A function `order(grid, nodes)` that sorts the nodes. With one that gives the same
            order in each run, a simulation can be repeated although node ids change.
        arrayrecord_key: The name of the record with the weights.
        configrecord_key: The name of the record with the configuration.
        metrics_port: Serve metrics for Prometheus under http://127.0.0.1:PORT/metrics while the run
            is going on. This needs the extra `prometheus`. None: no server.
        clock: The time functions to use; tests replace them.

    Raises:
        ValueError: If an argument is not allowed, or if the plan is for another rule.
        ImportError: If `metrics_port` is given and prometheus_client is not installed.

    Example:
        >>> import fedro
        >>> plan = fedro.plan(clients=150, byzantine=15, rounds=500)
        >>> strategy = FedRo(plan=plan, client_lr=0.1)  # runs the rule of the plan
        >>> result = strategy.start(grid, initial_arrays, num_rounds=500)  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        plan: Plan,
        rule: str | Rule | None = None,
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
        max_void_rounds: int = 3,
        online_wait: float = 60.0,
        quarantine: int | None = None,
        exclude: str = "none",
        fdr: float = DEFAULT_FDR,
        quorum: int | None = None,
        quorum_after: float | None = None,
        flat: bool = False,
        statistics: Collection[str] | None = None,
        order: Order | None = None,
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        metrics_port: int | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        plan = checked_plan(plan)
        checked = checked_rule(rule, plan)
        evaluators = plan.sampled if evaluate_clients is None else evaluate_clients
        self.settings = StrategySettings(
            plan=plan,
            rule=checked,
            config=configuration(
                plan,
                seed,
                rule=str(checked),
                server_lr=server_lr,
                client_lr=client_lr,
                local_steps=local_steps,
                evaluate_every=evaluate_every,
                checkpoint_every=checkpoint_every,
                exclude=exclude,
                fdr=fdr,
            ),
            folder=None if folder is None else Path(folder),
            resume=resume,
            keep_checkpoints=count("keep_checkpoints", keep_checkpoints, 2),
            seed=seed,
            evaluate_clients=count("evaluate_clients", evaluators, 0),
            max_void_rounds=count("max_void_rounds", max_void_rounds, 1),
            online_wait=number("online_wait", online_wait, "online_wait ≥ 0", lambda x: x >= 0),
            quarantine=None if quarantine is None else count("quarantine", quarantine, 1),
            quorum=checked_quorum(plan, checked, quorum, quorum_after),
            flat=flat,
            statistics=statistics,
            order=order,
            arrays_key=arrayrecord_key,
            config_key=configrecord_key,
            metrics_port=checked_port(metrics_port),
            clock=clock,
        )
        self.session: Session | None = None
        self._last_round: int | None = None  # it is always evaluated
        self._metrics: RunMetrics | None = None  # while the run is going on

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Invite n̂ of the nodes that are online, or nobody if no draw from them is safe."""
        session = self._session(arrays)
        return invite_to_train(self.settings, session, server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check the replies and take the server's step. Returns no arrays if the round is void."""
        return aggregate_updates(self.settings, self._running(), by_claimed_source(replies))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Invite nodes to evaluate the model, if this round is to be evaluated."""
        s, session = self.settings, self._session(arrays)
        due = server_round % s.config["evaluate_every"] == 0 or server_round == self._last_round
        if not (due and s.evaluate_clients):
            return []
        return invite_to_evaluate(s, session, server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The mean of each metric without its b̂ lowest and b̂ highest values."""
        return aggregate_evaluations(self._running(), by_claimed_source(replies))

    def summary(self) -> None:
        """Log the plan, the rule and the run folder."""
        log_summary(self.settings)

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
        """Run all rounds, or the remaining ones of a resumed run.

        Args:
            grid: Flower's connection to the nodes.
            initial_arrays: The model to start from.
            num_rounds: The number of rounds, at most the number of draws of the plan.
            timeout: How many seconds to wait for the replies of a round.
            train_config: More entries for the clients' config record in training.
            evaluate_config: The same for evaluations.
            evaluate_fn: Called as `evaluate_fn(round, arrays)` before the first and after each
                round, to evaluate the model with data of the server.

        Returns:
            The final model and the metrics of all rounds.

        Raises:
            ValueError: If an argument is not allowed.
            TooFewRepliesError: If `max_void_rounds` rounds in a row were void.
            RunFolderError: If the run folder cannot be used or holds a different run.
            OSError: If another program uses the port of the metrics.
            UserCodeError: If a rule, `evaluate_fn` or `order` of your own failed. The message shows
                the line; the run can be resumed.
        """
        try:
            with serving(self.settings.metrics_port, self.settings.plan) as self._metrics:
                return self._start(
                    grid,
                    initial_arrays,
                    num_rounds,
                    timeout,
                    train_config,
                    evaluate_config,
                    evaluate_fn,
                )
        except UserCodeError as error:  # its message shows the line; ours would only hide it
            raise error.with_traceback(None) from error.__cause__

    def _start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int,
        timeout: float,
        train_config: ConfigRecord | None,
        evaluate_config: ConfigRecord | None,
        evaluate_fn: EvaluateFn | None,
    ) -> Result:
        s, start = self.settings, time.time()
        number("timeout", timeout, "timeout > 0, in seconds", lambda x: x > 0)
        count("num_rounds", num_rounds, 1, s.plan.problem.draws, "draws that the plan is for")
        self.session, self._last_round = None, num_rounds
        session = self._session(initial_arrays)
        limit_retries(grid)
        log_start(num_rounds, initial_arrays, session.layout)
        self.summary()
        config = {**s.config, "rounds": num_rounds}
        recorder = SessionRecorder(s.folder, session, config, s.resume, s.keep_checkpoints)
        result = Result(arrays=session.layout.record(session.state.model))
        restore_metrics(result, recorder.rounds())
        try:
            if not recorder.finished:
                self._rounds(
                    grid, result, recorder, timeout, train_config, evaluate_config, evaluate_fn
                )
                problem = recorder.finish(s.plan, s.rule, s.server_lr)
                if problem is not None:
                    log(WARNING, "%s", problem)
        except BaseException as error:
            if not isinstance(error, RunFolderError):
                recorder.save()
            if isinstance(error, UserCodeError) and recorder.folder is not None:
                error.advice = f"The run is saved in {recorder.folder.path}: resume it."
            raise
        finally:
            recorder.close()
        log_end(session, result, time.time() - start)
        return result

    def _rounds(
        self,
        grid: Grid,
        result: Result,
        recorder: SessionRecorder,
        timeout: float,
        train_config: ConfigRecord | None,
        evaluate_config: ConfigRecord | None,
        evaluate_fn: EvaluateFn | None,
    ) -> None:
        s, session, last = self.settings, self._running(), self._last_round or 0
        if self._metrics is not None:
            self._metrics.begin(session, last)
        if evaluate_fn is not None:
            evaluate_fn = UserCode("function evaluate_fn", evaluate_fn).wrap(evaluate_fn)
        if evaluate_fn is not None and not session.state.round:
            before = evaluate_fn(0, result.arrays)
            log(INFO, "Initial global evaluation results: %s", before)
            if before is not None:
                result.evaluate_metrics_serverapp[0] = before
        for server_round in range(session.state.round + 1, last + 1):
            log(INFO, "")
            log(INFO, "[ROUND %d/%d]", server_round, last)
            with during(f"in round {server_round}"):
                self._train(grid, result, server_round, timeout, train_config)
                self._evaluate(grid, result, server_round, timeout, evaluate_config)
                self._evaluate_at_server(result, server_round, evaluate_fn)
            due = server_round % s.config["checkpoint_every"] == 0
            recorder.write(checkpoint=due or server_round == last)
            if self._metrics is not None:
                self._metrics.record_round(session)
            check_void_rounds(session, s.max_void_rounds, recorder)

    def _train(
        self,
        grid: Grid,
        result: Result,
        server_round: int,
        timeout: float,
        config: ConfigRecord | None,
    ) -> None:
        sent = self.configure_train(server_round, result.arrays, config or ConfigRecord(), grid)
        replies = self._collect(grid, sent, timeout, enough=self._quorum_reached)
        arrays, metrics = aggregate_updates(self.settings, self._running(), replies)
        if arrays is not None:
            result.arrays = arrays
        if metrics is not None:
            log(INFO, "\t└──> Aggregated MetricRecord: %s", metrics)
            result.train_metrics_clientapp[server_round] = metrics

    def _collect(
        self,
        grid: Grid,
        messages: list[Message],
        timeout: float,
        enough: Callable[[float], bool] = lambda seconds: False,
    ) -> Iterator[NodeReply]:
        """Send messages and collect the replies, with limited memory until all are read."""
        layout = self._running().layout
        limits = ReplyLimits(layout.max_reply_bytes, len(layout.names))
        in_memory = BYTES_IN_MEMORY * (PARALLEL_DOWNLOADS + 1) * limits.max_bytes
        with memory_limit(in_memory) if is_deployment(grid) else nullcontext():
            yield from send_and_collect(
                grid, messages, timeout, self.settings.clock, limits=limits, enough=enough
            )

    def _quorum_reached(self, seconds: float) -> bool:
        quorum, session = self.settings.quorum, self._running()
        if quorum is None or session.draw is None:
            return False
        return quorum.reached(session.draw, self.settings.rule, session.received, seconds)

    def _evaluate(
        self,
        grid: Grid,
        result: Result,
        server_round: int,
        timeout: float,
        config: ConfigRecord | None,
    ) -> None:
        session = self._running()
        with timed(session.current_round, "evaluate"):
            sent = self.configure_evaluate(
                server_round, result.arrays, config or ConfigRecord(), grid
            )
            metrics = aggregate_evaluations(session, self._collect(grid, sent, timeout))
        if metrics is not None:
            log(INFO, "\t└──> Aggregated MetricRecord: %s", metrics)
            result.evaluate_metrics_clientapp[server_round] = metrics
            means = {name: mean.value for name, mean in session.metrics["evaluate"].items()}
            session.current_round.score = score_of(means, by_server=False)

    def _evaluate_at_server(
        self, result: Result, server_round: int, evaluate_fn: EvaluateFn | None
    ) -> None:
        """Evaluate with the server's own data. This score replaces the one from the clients."""
        metrics = None if evaluate_fn is None else evaluate_fn(server_round, result.arrays)
        if metrics is not None and not isinstance(metrics, (MetricRecord, Mapping)):
            raise ValueError(
                f"evaluate_fn returned {one_line(repr(metrics), 60)}: it must return a "
                "MetricRecord, as in MetricRecord({'accuracy': 0.9}), or None"
            )
        if metrics is not None:
            log(INFO, "Global evaluation")
            log(INFO, "\t└──> MetricRecord: %s", metrics)
            result.evaluate_metrics_serverapp[server_round] = metrics
            numbers = {k: float(v) for k, v in metrics.items() if isinstance(v, (int, float))}
            self._running().current_round.score = score_of(numbers, by_server=True)

    def _session(self, arrays: ArrayRecord) -> Session:
        if self.session is None:
            layout = ArrayLayout(arrays, self.settings.statistics)
            seed = new_seed() if self.settings.seed is None else self.settings.seed
            self.session = Session(layout, State(0, layout.vector(arrays)), seed)
        return self.session

    def _running(self) -> Session:
        if self.session is None:
            raise ValueError("no round has begun: configure_train comes first")
        return self.session


def check_void_rounds(session: Session, max_void_rounds: int, recorder: SessionRecorder) -> None:
    """Raise after too many void rounds in a row."""
    if session.void_rounds < max_void_rounds:
        return
    round_ = session.current_round
    reasons = Counter([*round_.missing.values(), *round_.rejected.values()]).most_common(3)
    lost = "; ".join(f"{times}× {reason}" for reason, times in reasons)
    folder = recorder.folder
    resume = "" if folder is None else f" The run is saved in {folder.path}: resume it."
    raise TooFewRepliesError(
        f"{counted(max_void_rounds, 'round')} in a row could not be used, so the run ends. The "
        f"last: {round_.void}." + (f" Replies lost in it: {lost}." if lost else "") + resume
    )


def score_of(metrics: Mapping[str, float], *, by_server: bool) -> Score | None:
    """A score from the first metrics whose names contain "loss" and "acc".

    The server's own accuracy is over all examples; the clients' is a mean over clients.
    """
    loss = next((value for name, value in metrics.items() if "loss" in name.lower()), None)
    accuracy = next((value for name, value in metrics.items() if "acc" in name.lower()), None)
    if loss is None and accuracy is None:
        return None
    known_loss = float("nan") if loss is None else loss
    if by_server:
        return Score(known_loss, accuracy, None, None)
    return Score(known_loss, None, accuracy, None)
