"""How many clients to sample each round (n̂), and how many Byzantine ones to tolerate (b̂)."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

from fedro.common.checks import count, number
from fedro.common.registry import unknown
from fedro.planning import theory
from fedro.planning.explanations import explain, no_safe_sample, unsafe_sample
from fedro.planning.feasibility import (
    BOUNDS,
    Goal,
    KappaFunction,
    PlanningProblem,
    SampleSearch,
    expected_kappa,
    make_goal,
    tolerated_at,
)
from fedro.rules import Rule, parse_rule

MAX_COUNT = 10**12  # clients, rounds, retries: floats cannot tell larger neighbors apart


class HasKappa(Protocol):
    """A rule of another kind than `Rule` that knows the κ proved for it."""

    def kappa(self, n: int, b: int) -> float | None:
        """Return the proved κ for n inputs of which b are Byzantine, or None without a proof."""


@dataclass(frozen=True)
class Outlook:
    """What a plan guarantees if the number of Byzantine clients is another than planned.

    Attributes:
        byzantine: The assumed number of Byzantine clients.
        confidence: The exact probability that the whole run is safe, with the plan's n̂ and b̂.
        overrun_rounds: The expected number of draws with more than b̂ Byzantine clients.
        tolerated: The b̂ that the plan's n̂ would need, or None if no b̂ is enough.

    Example:
        >>> outlook = plan(clients=150, byzantine=15, rounds=500).if_more(23)
        >>> round(outlook.confidence, 3), outlook.tolerated
        (0.425, 12)
    """

    byzantine: int
    confidence: float
    overrun_rounds: float
    tolerated: int | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many clients to sample and to tolerate, and what that guarantees.

    `fedro.plan` makes plans. `FedRo(plan=...)` and `Experiment(sampled=..., tolerated=...)` use
    them.

    Attributes:
        sampled: n̂, the number of clients to invite each round.
        tolerated: b̂, the number of Byzantine clients among them that the rule must withstand.
        clients: n, the number of all clients.
        byzantine: b, the number of Byzantine clients among all clients.
        rounds: T, the number of rounds.
        confidence: The wanted probability that the whole run is safe.
        confidence_achieved: The exact probability that the whole run is safe, also if a Chernoff
            bound chose b̂.
        bound: The bound that chose b̂: "exact", "shifted" or "literal".
        rule: The rule whose κ counts, as text.
        kappa: The proved κ of the rule with n̂ and b̂, for the expected number of replies.
        kappa_everyone: The proved κ of the rule if every client is sampled.
        max_kappa: The limit on κ that n̂ had to meet, or None.
        max_fraction: The limit on b̂/n̂ that n̂ had to meet, or None.
        n_th: The paper's threshold n̂_th, at most n. None without Byzantine clients.
        n_opt: The paper's threshold n̂_opt, at most n. None without Byzantine clients.
        n_min: The smallest n̂ that is safe with some b̂.
        n_all: The smallest n̂ from which every n̂ is safe, or None if there is none.
        impossibility: The paper's lower bound on n̂, valid for large n. None if it does not apply.
        available: The fewest clients that are ever online, or None if all are.
        dropout: The probability that an invited client does not reply.
        retries: The number of extra draws for void rounds.
        received: The expected number of replies of n̂ invited clients, rounded down.
        recommended: Whether the planner chose n̂. False if the caller gave it.
        problem: The demands that the plan meets.
        kappa_of: κ of the rule as a function of n and b.

    Example:
        >>> chosen = plan(clients=150, byzantine=15, rounds=500)
        >>> chosen.sampled, chosen.tolerated, chosen.kappa
        (27, 9, 1.0)
    """

    sampled: int
    tolerated: int
    clients: int
    byzantine: int
    rounds: int
    confidence: float
    confidence_achieved: float
    bound: str
    rule: str
    kappa: float
    kappa_everyone: float
    max_kappa: float | None
    max_fraction: float | None
    n_th: int | None
    n_opt: int | None
    n_min: int
    n_all: int | None
    impossibility: float | None
    available: int | None
    dropout: float
    retries: int
    received: int
    recommended: bool
    problem: PlanningProblem = field(repr=False)
    kappa_of: KappaFunction = field(repr=False, compare=False)

    @property
    def margin(self) -> int:
        """n̂ − 2b̂: a round is void if this many replies are missing."""
        return self.sampled - 2 * self.tolerated

    @property
    def why(self) -> tuple[str, ...]:
        """The reasons for this plan, as sentences."""
        return tuple(explain(self))

    def at(self, sampled: int) -> tuple[int, float] | None:
        """The plan for another sample size.

        Args:
            sampled: n̂, the number of clients to invite each round.

        Returns:
            The smallest safe b̂ and its κ, or None if no b̂ is safe with this n̂.
        """
        tolerated = tolerated_at(self.problem, sampled)
        if tolerated is None:
            return None
        kappa = expected_kappa(self.problem, self.kappa_of, sampled, tolerated)
        return None if kappa is None else (tolerated, kappa)

    def if_more(self, byzantine: int) -> Outlook:
        """What n̂ and b̂ of this plan guarantee with another number of Byzantine clients.

        Args:
            byzantine: The number of Byzantine clients to assume.

        Returns:
            The exact confidence, the expected overruns, and the b̂ that would be needed.

        Raises:
            ValueError: If `byzantine` is more than the clients that can be drawn.
        """
        population = self.problem.population
        bad = count("byzantine", byzantine, 0, population, "the clients that can be drawn")
        truth = replace(self.problem, byzantine=bad, bound="exact")
        log_safe = truth.log_safe(self.sampled, self.tolerated)
        return Outlook(
            byzantine=bad,
            confidence=truth.achieved(self.sampled, self.tolerated),
            overrun_rounds=truth.draws * -math.expm1(log_safe / truth.draws),
            tolerated=tolerated_at(truth, self.sampled),
        )

    def as_dict(self) -> dict[str, Any]:
        """All fields, the margin and the reasons as plain values for JSON."""
        hidden = {"problem", "kappa_of"}
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in hidden}
        plain = {k: None if v in (math.inf, -math.inf) else v for k, v in values.items()}
        return {**plain, "margin": self.margin, "why": list(self.why)}


def plan(
    *,
    clients: int,
    byzantine: int,
    rounds: int,
    confidence: float = 0.99,
    sampled: int | None = None,
    bound: str = "exact",
    rule: str | Rule | HasKappa = "trimmed_mean",
    max_kappa: float | None = None,
    max_fraction: float | None = None,
    dropout: float = 0.0,
    available: int | None = None,
    retries: int = 0,
) -> Plan:
    """Choose how many clients to sample (n̂) and how many Byzantine ones to tolerate (b̂).

    The plan guarantees that, with the wanted confidence, no round of the whole run samples more
    than b̂ Byzantine clients. Without `sampled`, it recommends the smallest n̂ whose κ or b̂/n̂ is
    within a limit. κ is the error that Byzantine clients can cause, in units of the variance of the
    honest updates.

    Args:
        clients: n, the number of all clients.
        byzantine: b, the number of clients that may be Byzantine. It must be less than half.
        rounds: T, the number of rounds of training.
        confidence: The wanted probability, above 0 and at most 1, that the whole run is safe: that
            no draw has more than b̂ Byzantine clients and no more draws are void than there are
            retries. With 1, b̂ is never exceeded whatever is drawn.
        sampled: n̂, if you have chosen it already. The plan then only finds the smallest safe b̂.
        bound: How the planner computes the probability that a draw has more than b̂ Byzantine
            clients. "exact" uses the hypergeometric distribution and gives the smallest b̂; use it
            unless you compare with the paper. "shifted" uses Chernoff's bound on P[more than b̂],
            from which the numbers in the paper's experiments follow. "literal" uses Chernoff's
            bound on P[b̂ or more], which is eq. (6) of the paper as it is printed. The last two are
            safe as well, but tolerate more than necessary.
        rule: The rule whose proved κ counts, as text like "nnm | trimmed_mean" or as a rule object
            like `fedro.rules.krum()`. It changes which n̂ is recommended and which κ is reported;
            the smallest safe b̂ for an n̂ does not depend on it.
        max_kappa: Recommend the smallest n̂ with at most this κ. The default is
            max(1, 2κ of sampling everyone). With `sampled`, only check that κ is within it.
        max_fraction: Recommend the smallest n̂ with at most this b̂/n̂ (below 0.5), instead of a
            limit on κ. Give either `max_kappa` or `max_fraction`.
        dropout: The probability, from 0 to below 1, that an invited client does not reply. Clients
            drop out independently of each other. A draw with 2b̂ replies or fewer is void.
        available: The fewest clients that are ever online; all by default. The plan assumes the
            worst case, in which every Byzantine client is online.
        retries: How many extra draws may replace void rounds in the whole run. Every draw counts
            for safety, so T + retries draws must be safe.

    Returns:
        The plan. `Plan.why` explains it in sentences.

    Raises:
        ValueError: If an argument is out of range, if no sample is safe with this confidence, if
            no sample meets the limit, or if no κ is proved for the rule. The message says which and
            what to change.

    Example:
        >>> chosen = plan(clients=150, byzantine=15, rounds=500, sampled=26)
        >>> chosen.tolerated, chosen.kappa
        (9, 1.125)
    """
    clients = count("clients", clients, 1, MAX_COUNT)
    rounds = count("rounds", rounds, 1, MAX_COUNT)
    problem = _problem(clients, byzantine, rounds, confidence, bound, dropout, available, retries)
    kappa_of = _kappa_of(rule)
    everyone = kappa_of(problem.population, problem.byzantine)
    if math.isinf(everyone):
        _check_valid(rule, problem.population, problem.byzantine)
        raise ValueError(
            f"rule={str(rule)!r} withstands no Byzantine client: plan with a robust rule"
        )
    recommended = sampled is None
    goal = make_goal(problem, kappa_of, everyone, max_kappa, max_fraction, recommended)

    anywhere = SampleSearch(problem, lambda n, b: True)
    n_min = anywhere.first()
    if n_min is None:
        raise ValueError(no_safe_sample(problem))
    n_all = anywhere.first_without_gaps()
    if sampled is None:
        sampled = _recommend(problem, goal, everyone)
    sampled = count("sampled", sampled, 1, problem.population, "the clients that can be drawn")
    tolerated = tolerated_at(problem, sampled)
    if tolerated is None or not goal.met(sampled, tolerated):
        raise ValueError(unsafe_sample(problem, sampled, tolerated, goal, n_min, n_all))

    n_th, n_opt, impossibility = _paper_thresholds(problem)
    kappa = expected_kappa(problem, kappa_of, sampled, tolerated)
    assert kappa is not None  # the goal is met
    if math.isinf(kappa):
        _check_valid(rule, problem.received(sampled), tolerated)
    return Plan(
        sampled=sampled,
        tolerated=tolerated,
        clients=clients,
        byzantine=problem.byzantine,
        rounds=rounds,
        confidence=problem.confidence,
        confidence_achieved=problem.achieved(sampled, tolerated),
        bound=bound,
        rule=str(rule),
        kappa=kappa,
        kappa_everyone=everyone,
        max_kappa=goal.max_kappa,
        max_fraction=goal.max_fraction,
        n_th=n_th,
        n_opt=n_opt,
        n_min=n_min,
        n_all=n_all,
        impossibility=impossibility,
        available=None if available is None else problem.population,
        dropout=problem.dropout,
        retries=problem.retries,
        received=problem.received(sampled),
        recommended=recommended,
        problem=problem,
        kappa_of=kappa_of,
    )


def _problem(
    clients: int,
    byzantine: int,
    rounds: int,
    confidence: float,
    bound: str,
    dropout: float,
    available: int | None,
    retries: int,
) -> PlanningProblem:
    """Check the arguments."""
    byzantine = count("byzantine", byzantine, 0, clients, "clients")
    population = clients
    if available is not None:
        population = count("available", available, 1, clients, "clients")
    if 2 * byzantine >= population:
        name = (
            "clients" if available is None else "available clients (all Byzantine ones among them)"
        )
        raise ValueError(
            f"byzantine={byzantine} of {population} {name}: half or more are Byzantine, and no "
            "rule can tell them from the honest ones; byzantine must be less than half"
        )
    if not isinstance(bound, str) or bound not in BOUNDS:
        raise ValueError(unknown("bound", bound, list(BOUNDS)))
    retries = count("retries", retries, 0, MAX_COUNT)
    return PlanningProblem(
        population=population,
        byzantine=byzantine,
        draws=rounds + retries,
        retries=retries,
        dropout=number("dropout", dropout, "0 ≤ dropout < 1", lambda x: 0 <= x < 1),
        confidence=number("confidence", confidence, "0 < confidence ≤ 1", lambda x: 0 < x <= 1),
        bound=bound,
    )


def _recommend(problem: PlanningProblem, goal: Goal, everyone: float) -> int:
    """The smallest n̂ that meets the goal."""
    sampled = SampleSearch(problem, goal.met).first()
    while sampled is not None and sampled <= problem.population:
        tolerated = tolerated_at(problem, sampled)
        if tolerated is not None and goal.met(sampled, tolerated):
            return sampled
        sampled += 1  # with dropouts, κ depends on the parity of the replies, not of n̂
    raise ValueError(
        f"no sample size reaches {goal}: sampling all {problem.population} clients has "
        f"κ = {everyone:.4g} and tolerated/sampled = "
        f"{problem.byzantine / problem.population:.4g}; allow more, or plan for fewer Byzantine "
        "clients"
    )


def _check_valid(rule: str | Rule | HasKappa, n: int, b: int) -> None:
    """Raise if the rule may not be used with n rows of which b are Byzantine."""
    if isinstance(rule, str | Rule):
        parse_rule(rule).kappa(n, b)


def _paper_thresholds(problem: PlanningProblem) -> tuple[int | None, int | None, float | None]:
    if problem.byzantine == 0:
        return None, None, None
    beta = problem.byzantine / problem.population
    draws, p, n = problem.draws, problem.confidence, problem.population
    return (
        int(min(n, theory.sample_threshold(beta, draws, p))),
        int(min(n, theory.optimal_threshold(beta, draws, p))),
        theory.impossibility_bound(beta, draws, p) if 0.5 <= p < 1 else None,
    )


def _kappa_of(rule: str | Rule | HasKappa) -> KappaFunction:
    if isinstance(rule, str | Rule) or hasattr(rule, "entry"):  # a factory: it was not called
        return parse_rule(rule).kappa_formula()  # type: ignore[arg-type]
    if not hasattr(rule, "kappa"):
        raise ValueError(f"rule={rule!r}: give a rule, or its name like 'nnm | trimmed_mean'")

    def kappa(n: int, b: int) -> float:
        value = rule.kappa(n, b)
        if value is None:
            raise ValueError(f"rule={str(rule)!r} has no proved κ: plan with another rule's")
        return value

    return kappa
