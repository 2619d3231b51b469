"""How many clients to sample each round (n̂), and how many Byzantine ones to tolerate (b̂)."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from fedro.common.checks import count, number
from fedro.common.registry import unknown
from fedro.common.shares import share_of
from fedro.planning import theory
from fedro.planning.explanations import (
    explain,
    no_safe_sample,
    no_sample_reaches,
    unsafe_sample,
)
from fedro.planning.feasibility import (
    BOUNDS,
    Goal,
    PlanningProblem,
    SampleSearch,
    expected_kappa,
    make_goal,
    tolerated_at,
)
from fedro.planning.planned_rule import PlannedRule, best_possible, planned_rule
from fedro.planning.tails import hypergeometric_quantile
from fedro.rules import DEFAULT_RULE, Rule

MAX_COUNT = 10**12  # clients, rounds, retries: floats cannot tell larger neighbors apart
SMALL_FEDERATION = 20  # clients; up to here, sampling fewer than all saves little and costs much
SAMPLED_WITHOUT_BYZANTINE = 10  # clients to sample if none is Byzantine, when any number is safe
LIKELY = 0.95  # of all draws have at most `Plan.likely_byzantine` Byzantine clients


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


class SampleSize(NamedTuple):
    """A sample size n̂ with the smallest b̂ that is safe, as `Plan.at` returns it.

    Attributes:
        sampled: n̂.
        tolerated: b̂.
        kappa: The κ proved for the plan's rule, or None.
        kappa_best: The least κ that any rule can have.

    Example:
        >>> plan(clients=150, byzantine=15, rounds=500).at(26)
        SampleSize(sampled=26, tolerated=9, kappa=4.5, kappa_best=1.125)
    """

    sampled: int
    tolerated: int
    kappa: float | None
    kappa_best: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many clients to sample and to tolerate, and what that guarantees.

    `fedro.plan` makes plans. `FedRo(plan=...)` and `Experiment(sampled=..., tolerated=...)` use
    them.

    A plan has several κ. `kappa` is proved for the plan's rule, in a round with b̂ Byzantine
    clients. `kappa_best` is the least that any rule can have in such a round. `kappa_mean` and
    `kappa_likely` are proved for the rule in rounds with fewer Byzantine clients, as most rounds
    are. Those that belong to the rule are None if nothing is proved for it.

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
        rule: The rule that the plan is for, as text. None for a plan without a rule.
        kappa: The κ proved for the rule with n̂ and b̂, for the expected number of replies.
        kappa_best: r = b̂/(n̂−2b̂), the least κ that any rule can have, for the same replies.
        mean_byzantine: The mean number of Byzantine clients in a draw.
        kappa_mean: The κ proved for the rule if that many (rounded up) are Byzantine; None if they
            are more than tolerated.
        likely_byzantine: The number of Byzantine clients that 95% of the draws do not exceed.
        kappa_likely: The κ proved for the rule if that many are Byzantine; None if they are more
            than tolerated.
        kappa_everyone: The κ proved for the rule if every client is sampled.
        max_kappa: The limit on the rule's κ that n̂ had to meet, or None.
        max_fraction: The limit on b̂/n̂ that n̂ had to meet, or None.
        max_best: The limit on r that n̂ had to meet, or None.
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
        planned_rule: The rule, with its proved κ as a function of n and b.

    Example:
        >>> chosen = plan(clients=150, byzantine=15, rounds=500)
        >>> chosen.sampled, chosen.tolerated, chosen.rule, chosen.kappa, chosen.kappa_best
        (27, 9, 'nnm | trimmed_mean', 4.0, 1.0)
    """

    sampled: int
    tolerated: int
    clients: int
    byzantine: int
    rounds: int
    confidence: float
    confidence_achieved: float
    bound: str
    rule: str | None
    kappa: float | None
    kappa_best: float
    mean_byzantine: float
    kappa_mean: float | None
    likely_byzantine: int
    kappa_likely: float | None
    kappa_everyone: float | None
    max_kappa: float | None
    max_fraction: float | None
    max_best: float | None
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
    planned_rule: PlannedRule = field(repr=False, compare=False)

    @property
    def margin(self) -> int:
        """A round is void if this many replies are missing: n̂ − 2b̂, or fewer if the rule says."""
        return self.sampled - self.problem.least_replies(self.tolerated) + 1

    @property
    def why(self) -> tuple[str, ...]:
        """The reasons for this plan, as sentences."""
        return tuple(explain(self))

    def at(self, sampled: int) -> "SampleSize | None":
        """The plan for another sample size.

        Args:
            sampled: n̂, the number of clients to invite each round.

        Returns:
            The smallest safe b̂ with its κ, or None if no b̂ is safe with this n̂.
        """
        tolerated = tolerated_at(self.problem, sampled)
        received = self.problem.received(sampled)
        if tolerated is None or received < self.problem.least_replies(tolerated):
            return None
        kappa = expected_kappa(self.problem, self.planned_rule, sampled, tolerated)
        return SampleSize(sampled, tolerated, kappa, best_possible(received, tolerated))

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

    @property
    def if_half_more(self) -> Outlook:
        """What the plan guarantees if there are half as many Byzantine clients again."""
        more = max(self.byzantine + 1, -(-3 * self.byzantine // 2))
        return self.if_more(min(more, self.problem.population))

    def as_dict(self) -> dict[str, Any]:
        """All fields, the margin and the reasons as plain values for JSON."""
        hidden = {"problem", "planned_rule"}
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in hidden}
        plain = {k: None if v in (math.inf, -math.inf) else v for k, v in values.items()}
        return {**plain, "margin": self.margin, "why": list(self.why)}


def plan(
    *,
    clients: int,
    byzantine: int | str,
    rounds: int,
    confidence: float = 0.99,
    sampled: int | str | None = None,
    bound: str = "exact",
    rule: str | Rule | None = DEFAULT_RULE,
    max_kappa: float | None = None,
    max_fraction: float | None = None,
    dropout: float = 0.0,
    available: int | str | None = None,
    retries: int = 0,
) -> Plan:
    """Choose how many clients to sample (n̂) and how many Byzantine ones to tolerate (b̂).

    The plan guarantees that, with the wanted confidence, no round of the whole run samples more
    than b̂ Byzantine clients. Without `sampled`, it recommends an n̂: everyone in a federation of up
    to 20 clients, 10 clients if none is Byzantine, and else the smallest n̂ that is good enough.

    Args:
        clients: n, the number of all clients.
        byzantine: b, the number of clients that may be Byzantine, or a share of the clients like
            "10%" (rounded up). It must be less than half.
        rounds: T, the number of rounds of training.
        confidence: The wanted probability, above 0 and at most 1, that the whole run is safe: that
            no draw has more than b̂ Byzantine clients and no more draws are void than there are
            retries. With 1, b̂ is never exceeded whatever is drawn.
        sampled: n̂, or a share of the clients, if you have chosen it already. The plan then only
            finds the smallest safe b̂.
        bound: How the planner computes the probability that a draw has more than b̂ Byzantine
            clients. "exact" uses the hypergeometric distribution and gives the smallest b̂; use it
            unless you compare with the paper. "shifted" uses Chernoff's bound on P[more than b̂],
            from which the numbers in the paper's experiments follow. "literal" uses Chernoff's
            bound on P[b̂ or more], which is eq. (6) of the paper as it is printed. The last two are
            safe as well, but tolerate more than necessary.
        rule: The rule that will run, as text like "nnm | trimmed_mean" or as a rule object like
            `fedro.rules.krum()`; its proved κ is reported. None plans without a rule. Neither the
            recommended n̂ nor b̂ depends on the κ of the rule, unless you give `max_kappa`.
        max_kappa: Recommend the smallest n̂ with which the rule's κ is at most this. Without
            `max_kappa` and `max_fraction`, n̂ is the smallest with which the best possible κ,
            r = b̂/(n̂−2b̂), is at most max(1, 2r of sampling everyone). With `sampled`, only check
            that κ is within it.
        max_fraction: Recommend the smallest n̂ with at most this b̂/n̂ (below 0.5), instead of a
            limit on κ. Give either `max_kappa` or `max_fraction`.
        dropout: The probability, from 0 to below 1, that an invited client does not reply. Clients
            drop out independently of each other. A draw with 2b̂ replies or fewer is void.
        available: The fewest clients that are ever online, or a share of the clients (rounded
            down); all by default. The plan assumes the worst case, in which every Byzantine client
            is online.
        retries: How many extra draws may replace void rounds in the whole run. Every draw counts
            for safety, so T + retries draws must be safe.

    Returns:
        The plan. `Plan.why` explains it in sentences.

    Raises:
        ValueError: If an argument is out of range, if no sample is safe with this confidence, if
            no sample meets the limit, or if the rule withstands no Byzantine client. The message
            says which and what to change.

    Example:
        >>> chosen = plan(clients=150, byzantine="10%", rounds=500, sampled=26, rule="trimmed_mean")
        >>> chosen.tolerated, chosen.kappa
        (9, 1.125)
    """
    clients = count("clients", clients, 1, MAX_COUNT)
    rounds = count("rounds", rounds, 1, MAX_COUNT)
    planned = planned_rule(rule)
    problem = _problem(clients, byzantine, rounds, confidence, bound, dropout, available, retries)
    problem = replace(problem, rule=planned)
    _check_robust(planned, problem)
    recommended = sampled is None
    goal = make_goal(problem, planned, max_kappa, max_fraction, recommended)

    anywhere = SampleSearch(problem, lambda n, b: True)
    n_min = anywhere.first()
    if n_min is None:
        raise ValueError(no_safe_sample(problem))
    n_all = anywhere.first_without_gaps()
    drawable = "the clients that can be drawn"
    if sampled is None:
        sampled = _recommend(problem, goal)
    size = share_of("sampled", sampled, clients, of="the clients")
    size = count("sampled", size, 1, problem.population, drawable)
    tolerated = tolerated_at(problem, size)
    if tolerated is None or not goal.met(size, tolerated):
        raise ValueError(unsafe_sample(problem, size, tolerated, goal, n_min, n_all))
    n_th, n_opt, impossibility = _paper_thresholds(problem)
    mean = size * problem.byzantine / problem.population
    likely = hypergeometric_quantile(LIKELY, problem.population, problem.byzantine, size)

    def kappa_with(bad: int) -> float | None:
        if bad > tolerated:
            return None
        return expected_kappa(problem, planned, size, tolerated, bad)

    return Plan(
        sampled=size,
        tolerated=tolerated,
        clients=clients,
        byzantine=problem.byzantine,
        rounds=rounds,
        confidence=problem.confidence,
        confidence_achieved=problem.achieved(size, tolerated),
        bound=bound,
        rule=None if planned.rule is None else str(planned.rule),
        kappa=kappa_with(tolerated),
        kappa_best=best_possible(problem.received(size), tolerated),
        mean_byzantine=mean,
        kappa_mean=kappa_with(math.ceil(mean)),
        likely_byzantine=likely,
        kappa_likely=kappa_with(likely),
        kappa_everyone=planned.kappa(problem.population, problem.byzantine),
        max_kappa=goal.max_kappa,
        max_fraction=goal.max_fraction,
        max_best=goal.max_best,
        n_th=n_th,
        n_opt=n_opt,
        n_min=n_min,
        n_all=n_all,
        impossibility=impossibility,
        available=None if available is None else problem.population,
        dropout=problem.dropout,
        retries=problem.retries,
        received=problem.received(size),
        recommended=recommended,
        problem=problem,
        planned_rule=planned,
    )


def byzantine_count(byzantine: int | str, clients: int) -> int:
    """The number of Byzantine clients, which may be given as a share of the clients."""
    bad = share_of("byzantine", byzantine, clients, of="the clients")
    return count("byzantine", bad, 0, clients, "clients")


def _problem(
    clients: int,
    byzantine: int | str,
    rounds: int,
    confidence: float,
    bound: str,
    dropout: float,
    available: int | str | None,
    retries: int,
) -> PlanningProblem:
    """Check the arguments."""
    byzantine = byzantine_count(byzantine, clients)
    population = clients
    if available is not None:
        online = share_of("available", available, clients, of="the clients", up=False)
        population = count("available", online, 1, clients, "clients")
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


def _recommend(problem: PlanningProblem, goal: Goal) -> int:
    """Everyone in a small federation, else the smallest n̂ that meets the goal."""
    if goal.max_best is not None:
        if problem.population <= SMALL_FEDERATION and _works(problem, goal, problem.population):
            return problem.population
        usual = min(problem.population, SAMPLED_WITHOUT_BYZANTINE)
        if problem.byzantine == 0 and _works(problem, goal, usual):
            return usual
    sampled = SampleSearch(problem, goal.met).first()
    while sampled is not None and sampled <= problem.population:
        if _works(problem, goal, sampled):
            return sampled
        sampled += 1  # with dropouts, κ depends on the parity of the replies, not of n̂
    raise ValueError(no_sample_reaches(goal))


def _works(problem: PlanningProblem, goal: Goal, sampled: int) -> bool:
    tolerated = tolerated_at(problem, sampled)
    return tolerated is not None and goal.met(sampled, tolerated)


def _check_robust(planned: PlannedRule, problem: PlanningProblem) -> None:
    """Raise if the rule withstands no Byzantine client."""
    n, b = problem.population, problem.byzantine
    if planned.formula is not None and planned.valid(n, b) and planned.kappa(n, b) is None:
        raise ValueError(f"rule='{planned}' withstands no Byzantine client: use a robust rule")


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
