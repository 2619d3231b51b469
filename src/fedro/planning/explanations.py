"""Sentences about a plan: why it is as it is, and why there is none."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from fedro.common.text import counted, percent
from fedro.planning.feasibility import (
    BOUNDS,
    Goal,
    PlanningProblem,
    SampleSearch,
    expected_kappa,
    least,
    tolerated_at,
)

if TYPE_CHECKING:
    from fedro.planning.planner import Plan


MAX_RETRIES_PER_ROUND = 100  # beyond this many, retries are no advice


def no_safe_sample(problem: PlanningProblem) -> str:
    """The error if no n̂ is safe."""
    at_dropout = f" at dropout {problem.dropout:g}" if problem.dropout else ""
    advice = [] if problem.bound == "exact" else ["use bound='exact'"]
    if problem.rule.condition:
        advice.append(
            f"use another rule, since {problem.rule} needs {problem.rule.condition} for n replies "
            "of which it tolerates b"
        )
    if problem.dropout:
        retries = enough_retries(problem, None)
        if retries is not None:
            advice.append(f"allow {counted(retries, 'retry', 'retries')} (retries={retries})")
        hopeless = ", since no number of retries would do" if retries is None else ""
        advice.append(f"expect fewer dropouts{hopeless}")
    return (
        f"no sample size of up to {problem.population} clients is safe with confidence "
        f"{problem.confidence:g} by the {problem.bound} bound{at_dropout}: {', or '.join(advice)}"
    )


def enough_retries(problem: PlanningProblem, sampled: int | None) -> int | None:
    """How many retries make this n̂ safe, or some n̂ if None; None if no sensible number does."""
    rounds = problem.draws - problem.retries

    def enough(retries: int) -> bool:
        more = replace(problem, draws=rounds + retries, retries=retries)
        if sampled is not None:
            return tolerated_at(more, sampled) is not None
        return SampleSearch(more, lambda n, b: True).first() is not None

    few, many = problem.retries, max(1, 2 * problem.retries)
    while not enough(many):
        few, many = many, 2 * many
        if many > MAX_RETRIES_PER_ROUND * rounds:
            return None
    return least(enough, few + 1, many)


def no_sample_reaches(goal: Goal) -> str:
    """The error if no n̂ meets the limit."""
    problem, rule = goal.problem, goal.rule
    n, b = problem.population, problem.byzantine
    kappa = rule.kappa(n, b)
    everyone = f"κ = {kappa:.4g} and " if kappa is not None else ""
    return (
        f"no sample size reaches {goal}: sampling all {n} clients has {everyone}"
        f"tolerated/sampled = {b / n:.4g}; allow more, or plan for fewer Byzantine clients"
    )


def unsafe_sample(
    problem: PlanningProblem,
    sampled: int,
    tolerated: int | None,
    goal: Goal,
    n_min: int,
    n_all: int | None,
) -> str:
    """The error if the n̂ that the user gave is not safe or misses the goal."""
    received = problem.received(sampled)
    if tolerated is not None and received < problem.least_replies(tolerated):
        return (
            f"sampled={sampled} has to tolerate {tolerated}, but only about {received} would "
            "reply: most rounds would be void; sample more"
        )
    if tolerated is not None:
        kappa = expected_kappa(problem, goal.rule, sampled, tolerated)
        has = "" if kappa is None else f" (κ = {kappa:.4g})"
        return (
            f"sampled={sampled} has to tolerate {tolerated}{has}, which misses {goal}: sample "
            "more, or allow more"
        )
    larger = f"; every size from {n_all} on works" if n_all else ""
    condition = problem.rule.condition
    allowed = f" that {problem.rule} allows ({condition})" if condition else ""
    retry = ""
    if problem.dropout and (retries := enough_retries(problem, sampled)) is not None:
        retry = f"; {sampled} would work with {counted(retries, 'retry', 'retries')}"
    return (
        f"sampled={sampled}: no tolerated < sampled/2{allowed} is safe with confidence "
        f"{problem.confidence:g} by the {problem.bound} bound. "
        f"The least that works is {n_min}{larger}{retry}"
    )


def explain(plan: "Plan") -> Iterator[str]:
    """The reasons for the plan, one or two sentences each."""
    yield _how_sure(plan)
    if plan.recommended and plan.byzantine:
        yield _how_good(plan)
    if plan.byzantine:
        yield whose_kappa(plan)
    if plan.kappa_mean is not None and plan.tolerated > plan.mean_byzantine > 0:
        yield _ordinary_rounds(plan)
    if plan.n_min < plan.sampled and plan.byzantine:
        yield _how_few(plan)
    if plan.available is not None:
        yield (
            f"Only {plan.available} of {plan.clients} clients may be online. In the worst case all "
            f"{plan.byzantine} Byzantine ones are among them, so the plan draws from "
            f"{plan.available} clients."
        )
    if plan.dropout:
        yield from _how_many_reply(plan)
    if plan.retries:
        yield (
            f"{plan.rounds} rounds and {plan.retries} retries make {plan.problem.draws} draws. "
            "Each of them must be safe, and at most as many may be void as there are retries."
        )


def _how_sure(plan: "Plan") -> str:
    if plan.byzantine == 0:
        everyone = plan.sampled == plan.problem.population
        chosen = "everyone" if everyone else counted(plan.sampled, "client")
        return (
            "Without Byzantine clients there is nothing to tolerate, and any number of clients may "
            f"be sampled. More of them mean less noise in each round; {chosen} is "
            f"{'what experiments use too' if plan.recommended else 'your choice'}."
        )
    if plan.sampled == plan.problem.population:
        return (
            "Everyone is sampled each round, so every round has all Byzantine clients "
            f"({plan.byzantine}) and tolerates {plan.tolerated}: no round can be an overrun."
        )
    chance = math.exp(plan.problem.log_safe_exact(plan.sampled, plan.tolerated))
    return (
        f"With probability {percent(chance)}, none of the {counted(plan.problem.draws, 'draw')} of "
        f"{counted(plan.sampled, 'client')} has more than "
        f"{counted(plan.tolerated, 'Byzantine one')} (the tolerance comes from "
        f"{BOUNDS[plan.bound]})."
    )


def _how_good(plan: "Plan") -> str:
    if plan.max_best is not None and plan.sampled == plan.problem.population:
        return (
            f"With {counted(plan.sampled, 'client')} it is best to sample everyone: a smaller "
            "sample would have to tolerate almost as many Byzantine clients with fewer honest ones "
            "to outvote them, and would save few messages."
        )
    if plan.max_best is not None:
        valid = plan.planned_rule.condition
        also = f", and which {plan.rule} allows ({valid})" if valid else ""
        return (
            f"{plan.sampled} is the smallest sample with which the best possible κ, r = b̂/(n̂−2b̂), "
            f"is at most {plan.max_best:.4g}{also}."
        )
    limit = f"b̂/n̂ is at most {plan.max_fraction}"
    if plan.max_fraction is None:
        limit = f"κ with {plan.rule} is at most {plan.max_kappa:.4g}"
    return f"{plan.sampled} is the smallest sample whose {limit}."


def whose_kappa(plan: "Plan") -> str:
    """Which κ is proved for the plan's rule, beside the best possible one."""
    best = f"no rule can have less than r = {plan.kappa_best:.4g}"
    if plan.rule is None:
        return f"The plan is for no particular rule; {best}."
    if plan.kappa is None:
        return f"No κ is proved for {plan.rule}; {best}."
    everyone = ""
    if plan.kappa_everyone is not None and plan.sampled < plan.problem.population:
        all_reply = ", if all replied," if plan.dropout else ""
        everyone = f" Sampling everyone{all_reply} would have κ = {plan.kappa_everyone:.4g}."
    return (
        f"κ = {plan.kappa:.4g} is proved for {plan.rule} in a round with "
        f"{counted(plan.tolerated, 'Byzantine client')}; {best}.{everyone}"
    )


def _ordinary_rounds(plan: "Plan") -> str:
    mean, likely = math.ceil(plan.mean_byzantine), plan.likely_byzantine
    average = f"A draw has {plan.mean_byzantine:.3g} Byzantine clients on average."
    not_exceeded = "which 95% of the draws do not exceed,"
    if mean == likely:
        return f"{average} With {mean}, {not_exceeded} the proved κ is {plan.kappa_mean:.4g}."
    proved = "nothing is proved, because they are more than tolerated"
    if plan.kappa_likely is not None:
        proved = f"it is {plan.kappa_likely:.4g}"
    return (
        f"{average} With {mean} of them the proved κ is {plan.kappa_mean:.4g}; with {likely}, "
        f"{not_exceeded} {proved}."
    )


def _how_few(plan: "Plan") -> str:
    smallest, price = plan.at(plan.n_min), ""
    if smallest is not None:
        no_kappa = smallest.kappa is None
        price = f", but with {'r' if no_kappa else 'κ'} = "
        price += f"{smallest.kappa_best if no_kappa else smallest.kappa:.4g}"
    gaps = ""
    if plan.n_all is not None and plan.n_all != plan.n_min:
        gaps = f" (but not every size below {plan.n_all}: an even size adds no tolerance)"
    return f"A sample of {plan.n_min} can be safe{gaps}{price}; no smaller sample can be safe."


def _how_many_reply(plan: "Plan") -> Iterator[str]:
    enough = math.exp(plan.problem.log_enough(plan.sampled, plan.tolerated))
    yield (
        f"If each invited client stays silent with probability {percent(plan.dropout)}, "
        f"independently, about {plan.received} of {plan.sampled} reply. A draw is void if "
        f"{plan.problem.least_replies(plan.tolerated) - 1} or fewer do; at most {plan.retries} of "
        f"{plan.problem.draws} draws are void with probability {percent(enough)}. κ is that "
        f"of {plan.received} replies."
    )
    if plan.sampled - plan.tolerated <= 2 * plan.tolerated:
        yield (
            "Byzantine clients that stay silent on purpose can make rounds void; "
            "they cost time and do not harm the model."
        )
