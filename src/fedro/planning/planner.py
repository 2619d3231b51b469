"""How many clients to sample each round (n̂), and how many bad ones to tolerate (b̂)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

from fedro.common.checks import count, number
from fedro.common.registry import unknown
from fedro.common.text import counted, percent
from fedro.planning import theory
from fedro.planning.feasibility import BOUNDS, Search, Setting, tolerated_at
from fedro.planning.goals import Goal, Kappa, expected_kappa, make_goal, nothing_works, unsafe
from fedro.rules.kappa import pipeline_kappa

MOST = 10**12  # clients, rounds, retries: beyond it floats cannot tell neighbors apart well enough


class HasKappa(Protocol):
    """Anything that knows the κ proved for it: a rule object."""

    def kappa(self, n: int, b: int) -> float | None:
        """The proved coefficient for n inputs of which b are bad."""


@dataclass(frozen=True)
class Outlook:
    """What a plan is worth should there be another number of bad clients."""

    byzantine: int
    confidence: float  # that the whole run is good, with n̂ and b̂ unchanged
    overrun_rounds: float  # expected number of draws with more than b̂ bad clients
    tolerated: int | None  # the b̂ that the same n̂ would need; None if no b̂ is enough


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many to sample and to tolerate, how sure that is, and what else could be chosen.

    >>> plan(clients=150, byzantine=15, rounds=500, sampled=26).tolerated
    9
    """

    sampled: int  # n̂, clients invited each round
    tolerated: int  # b̂, bad ones among them that the rule must withstand
    clients: int
    byzantine: int
    rounds: int
    confidence: float  # wanted
    confidence_achieved: float  # exact, also where a Chernoff bound chose b̂
    bound: str
    rule: str
    kappa: float  # of the rule, with as many answers as are to be expected
    kappa_everyone: float
    max_kappa: float | None
    max_fraction: float | None
    n_th: int | None  # the paper's thresholds, at most n; None without bad clients
    n_opt: int | None
    n_min: int  # the least n̂ that can work at all
    n_all: int | None  # from here on every n̂ works
    impossibility: float | None  # the paper's: below this no b̂ works, if n is large enough
    available: int | None
    dropout: float
    retries: int
    received: int  # answers to expect of n̂ invited
    recommended: bool  # n̂ is our choice, not the caller's
    setting: Setting = field(repr=False)
    kappa_of: Kappa = field(repr=False, compare=False)

    @property
    def margin(self) -> int:
        """n̂ − 2b̂: with this many answers missing, a round is void."""
        return self.sampled - 2 * self.tolerated

    @property
    def why(self) -> tuple[str, ...]:
        """The reasons, in sentences."""
        return tuple(explain(self))

    def at(self, sampled: int) -> tuple[int, float] | None:
        """The smallest safe b̂ and its κ for another n̂, or None where there is none."""
        tolerated = tolerated_at(self.setting, sampled)
        if tolerated is None:
            return None
        kappa = expected_kappa(self.setting, self.kappa_of, sampled, tolerated)
        return None if kappa is None else (tolerated, kappa)

    def if_more(self, byzantine: int) -> Outlook:
        """What the guarantee becomes if there are `byzantine` bad clients after all."""
        population = self.setting.population
        bad = count("byzantine", byzantine, 0, population, "the clients that can be drawn")
        truth = replace(self.setting, byzantine=bad, bound="exact")
        log_safe = truth.log_safe(self.sampled, self.tolerated)
        return Outlook(
            byzantine=bad,
            confidence=truth.achieved(self.sampled, self.tolerated),
            overrun_rounds=truth.draws * -math.expm1(log_safe / truth.draws),
            tolerated=tolerated_at(truth, self.sampled),
        )

    def as_dict(self) -> dict[str, Any]:
        """Everything a program may want, as plain values."""
        hidden = {"setting", "kappa_of"}
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
    rule: str | HasKappa = "trimmed_mean",
    max_kappa: float | None = None,
    max_fraction: float | None = None,
    dropout: float = 0.0,
    available: int | None = None,
    retries: int = 0,
) -> Plan:
    """Choose n̂ and b̂ so that all rounds have at most b̂ bad clients with the wanted confidence.

    Without `sampled`, n̂ is the smallest whose κ is at most `max_kappa`, by default
    max(1, 2κ of sampling everyone); or, with `max_fraction`, the smallest with b̂/n̂ at most that.
    `dropout` is the probability that an invited client does not answer, `retries` the number of
    extra draws that void rounds may cost, `available` the fewest clients that are ever online.
    """
    clients = count("clients", clients, 1, MOST)
    rounds = count("rounds", rounds, 1, MOST)
    setting = _setting(clients, byzantine, rounds, confidence, bound, dropout, available, retries)
    kappa_of = _kappa_of(rule)
    everyone = kappa_of(setting.population, setting.byzantine)
    if math.isinf(everyone):
        raise ValueError(f"rule={str(rule)!r} withstands no bad client: plan for a robust rule")
    recommended = sampled is None
    goal = make_goal(setting, kappa_of, everyone, max_kappa, max_fraction, recommended)

    anywhere = Search(setting, lambda n, b: True)
    n_min = anywhere.first()
    if n_min is None:
        raise ValueError(nothing_works(setting))
    n_all = anywhere.from_where_all()
    if sampled is None:
        sampled = _recommend(setting, goal, everyone)
    sampled = count("sampled", sampled, 1, setting.population, "the clients that can be drawn")
    tolerated = tolerated_at(setting, sampled)
    if tolerated is None or not goal.met(sampled, tolerated):
        raise ValueError(unsafe(setting, sampled, tolerated, goal, n_min, n_all))

    n_th, n_opt, impossibility = _paper_thresholds(setting)
    kappa = expected_kappa(setting, kappa_of, sampled, tolerated)
    assert kappa is not None  # the goal is met
    return Plan(
        sampled=sampled,
        tolerated=tolerated,
        clients=clients,
        byzantine=setting.byzantine,
        rounds=rounds,
        confidence=setting.confidence,
        confidence_achieved=setting.achieved(sampled, tolerated),
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
        available=None if available is None else setting.population,
        dropout=setting.dropout,
        retries=setting.retries,
        received=setting.received(sampled),
        recommended=recommended,
        setting=setting,
        kappa_of=kappa_of,
    )


def _setting(
    clients: int,
    byzantine: int,
    rounds: int,
    confidence: float,
    bound: str,
    dropout: float,
    available: int | None,
    retries: int,
) -> Setting:
    """The checked arguments, as one planning problem."""
    byzantine = count("byzantine", byzantine, 0, clients, "clients")
    population = clients
    if available is not None:
        population = count("available", available, 1, clients, "clients")
    if 2 * byzantine >= population:
        name = "clients" if available is None else "available clients (all bad ones among them)"
        raise ValueError(
            f"byzantine={byzantine} of {population} {name}: half or more are bad, and no rule can "
            "tell them from the good ones; byzantine must be less than half"
        )
    if not isinstance(bound, str) or bound not in BOUNDS:
        raise ValueError(unknown("bound", bound, list(BOUNDS)))
    retries = count("retries", retries, 0, MOST)
    return Setting(
        population=population,
        byzantine=byzantine,
        draws=rounds + retries,
        retries=retries,
        dropout=number("dropout", dropout, "0 ≤ dropout < 1", lambda x: 0 <= x < 1),
        confidence=number("confidence", confidence, "0 < confidence ≤ 1", lambda x: 0 < x <= 1),
        bound=bound,
    )


def _recommend(setting: Setting, goal: Goal, everyone: float) -> int:
    """The smallest n̂ that meets the goal."""
    sampled = Search(setting, goal.met).first()
    while sampled is not None and sampled <= setting.population:
        tolerated = tolerated_at(setting, sampled)
        if tolerated is not None and goal.met(sampled, tolerated):
            return sampled
        sampled += 1  # with dropouts, κ's parity is that of the answers, not of n̂
    raise ValueError(
        f"no sample size reaches {goal}: sampling all {setting.population} clients has "
        f"κ = {everyone:.4g} and tolerated/sampled = "
        f"{setting.byzantine / setting.population:.4g}; allow more, or find fewer bad clients"
    )


def _paper_thresholds(setting: Setting) -> tuple[int | None, int | None, float | None]:
    if setting.byzantine == 0:
        return None, None, None
    beta = setting.byzantine / setting.population
    draws, p, n = setting.draws, setting.confidence, setting.population
    return (
        int(min(n, theory.sample_threshold(beta, draws, p))),
        int(min(n, theory.optimal_threshold(beta, draws, p))),
        theory.impossibility_bound(beta, draws, p) if 0.5 <= p < 1 else None,
    )


def _kappa_of(rule: str | HasKappa) -> Kappa:
    if isinstance(rule, str):
        return pipeline_kappa(rule)
    if not hasattr(rule, "kappa"):
        raise ValueError(f"rule={rule!r}: give a rule, or its name like 'nnm | trimmed_mean'")

    def kappa(n: int, b: int) -> float:
        value = rule.kappa(n, b)
        if value is None:
            raise ValueError(f"rule={str(rule)!r} has no proved κ: plan with another rule's")
        return value

    return kappa


def explain(plan: Plan) -> Iterator[str]:
    """The plan's reasons, a sentence or two each."""
    yield _how_sure(plan)
    if plan.recommended:
        yield _how_good(plan)
    if plan.n_min < plan.sampled:
        yield _how_few(plan)
    if plan.available is not None:
        yield (
            f"Only {plan.available} of {plan.clients} clients may be online, and in the worst case "
            f"all {plan.byzantine} bad ones are: the draws are counted from {plan.available}."
        )
    if plan.dropout:
        yield from _how_many_answer(plan)
    if plan.retries:
        yield (
            f"{plan.rounds} rounds and {plan.retries} retries are {plan.setting.draws} draws: "
            "each must be safe, and no more of them may be void than there are retries."
        )


def _how_sure(plan: Plan) -> str:
    if plan.byzantine == 0:
        return (
            "Without bad clients there is nothing to tolerate: any number may be sampled, and "
            "more of them mean less noise in each round."
        )
    if plan.sampled == plan.setting.population:
        return (
            f"Everyone is sampled each round, so what is bad is always there: "
            f"{counted(plan.byzantine, 'bad client')}, and {plan.tolerated} tolerated, for certain."
        )
    chance = math.exp(plan.setting.log_safe_exact(plan.sampled, plan.tolerated))
    return (
        f"Of {counted(plan.sampled, 'client')} drawn at random, at most {plan.tolerated} are bad "
        f"in each of {plan.setting.draws} draws with probability {percent(chance)} (b̂ was chosen "
        f"by {BOUNDS[plan.bound]})."
    )


def _how_good(plan: Plan) -> str:
    limit = f"b̂/n̂ is at most {plan.max_fraction}"
    if plan.max_fraction is None:
        limit = f"error factor κ is at most {plan.max_kappa:.4g}"
    everyone = "everyone, if all answered," if plan.setting.dropout else "everyone"
    return (
        f"{plan.sampled} is the smallest sample whose {limit}; it has κ = {plan.kappa:.4g} with "
        f"{plan.rule}, and sampling {everyone} would have κ = {plan.kappa_everyone:.4g}."
    )


def _how_few(plan: Plan) -> str:
    found = plan.at(plan.n_min)
    price = f", but with κ = {found[1]:.4g}" if found else ""
    flicker = ""
    if plan.n_all is not None and plan.n_all != plan.n_min:
        flicker = f" (and not every size below {plan.n_all}: an even one gains no tolerance)"
    return f"As few as {plan.n_min} can be safe{flicker}{price}; fewer never are."


def _how_many_answer(plan: Plan) -> Iterator[str]:
    enough = math.exp(plan.setting.log_enough(plan.sampled, plan.tolerated))
    yield (
        f"If each invited client stays silent with probability {percent(plan.dropout)}, "
        f"independently, about {plan.received} of {plan.sampled} answer, and a draw is void when "
        f"{2 * plan.tolerated} or fewer do: at most {plan.retries} of {plan.setting.draws} draws "
        f"are void with probability {percent(enough)}. κ is that of {plan.received} answers."
    )
    if plan.sampled - plan.tolerated <= 2 * plan.tolerated:
        yield (
            "Bad clients that stay silent on purpose can make rounds void; "
            "they cost time, not the model."
        )
