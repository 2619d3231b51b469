"""Sentences about a plan: why it is as it is, and why there is none."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedro.common.text import counted, percent
from fedro.planning.feasibility import BOUNDS, Goal, PlanningProblem, expected_kappa

if TYPE_CHECKING:
    from fedro.planning.planner import Plan


def no_safe_sample(problem: PlanningProblem) -> str:
    """The error if no n̂ is safe."""
    advice = "allow retries, or expect fewer dropouts" if problem.dropout else ""
    if problem.bound != "exact":
        advice = "use bound='exact'" + (f", {advice}" if advice else "")
    return (
        f"no sample size of up to {problem.population} clients is safe with confidence "
        f"{problem.confidence:g} by the {problem.bound} bound"
        f"{' at dropout ' + format(problem.dropout, 'g') if problem.dropout else ''}: {advice}"
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
    kappa = None
    if tolerated is not None:
        kappa = expected_kappa(problem, goal.kappa_of, sampled, tolerated)
        if kappa is None:
            return (
                f"sampled={sampled} has to tolerate {tolerated}, but only about "
                f"{problem.received(sampled)} would reply: most rounds would be void; sample more"
            )
    if kappa is not None:
        return (
            f"sampled={sampled} has to tolerate {tolerated} (κ = {kappa:.4g}), which misses "
            f"{goal}: sample more, or allow more"
        )
    larger = f"; every size from {n_all} on works" if n_all else ""
    return (
        f"sampled={sampled}: no tolerated < sampled/2 is safe with confidence "
        f"{problem.confidence:g} by the {problem.bound} bound. "
        f"The least that works is {n_min}{larger}"
    )


def explain(plan: "Plan") -> Iterator[str]:
    """The reasons for the plan, one or two sentences each."""
    yield _how_sure(plan)
    if plan.recommended:
        yield _how_good(plan)
    if plan.n_min < plan.sampled:
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
        return (
            "Without Byzantine clients there is nothing to tolerate. Any number of clients may be "
            "sampled; more of them mean less noise in each round."
        )
    if plan.sampled == plan.problem.population:
        return (
            "Everyone is sampled each round, so every round has all Byzantine clients "
            f"({plan.byzantine}) and tolerates {plan.tolerated}: the run is safe for certain."
        )
    chance = math.exp(plan.problem.log_safe_exact(plan.sampled, plan.tolerated))
    return (
        f"With probability {percent(chance)}, none of the {counted(plan.problem.draws, 'draw')} of "
        f"{counted(plan.sampled, 'client')} has more than {plan.tolerated} Byzantine ones (the "
        f"tolerance comes from {BOUNDS[plan.bound]})."
    )


def _how_good(plan: "Plan") -> str:
    limit = f"b̂/n̂ is at most {plan.max_fraction}"
    if plan.max_fraction is None:
        limit = f"error factor κ is at most {plan.max_kappa:.4g}"
    everyone = "everyone, if all replied," if plan.problem.dropout else "everyone"
    return (
        f"{plan.sampled} is the smallest sample whose {limit}; it has κ = {plan.kappa:.4g} with "
        f"{plan.rule}, and sampling {everyone} would have κ = {plan.kappa_everyone:.4g}."
    )


def _how_few(plan: "Plan") -> str:
    smallest = plan.at(plan.n_min)
    price = f", but with κ = {smallest[1]:.4g}" if smallest else ""
    gaps = ""
    if plan.n_all is not None and plan.n_all != plan.n_min:
        gaps = f" (but not every size below {plan.n_all}: an even size adds no tolerance)"
    return f"A sample of {plan.n_min} can be safe{gaps}{price}; no smaller sample can be safe."


def _how_many_reply(plan: "Plan") -> Iterator[str]:
    enough = math.exp(plan.problem.log_enough(plan.sampled, plan.tolerated))
    yield (
        f"If each invited client stays silent with probability {percent(plan.dropout)}, "
        f"independently, about {plan.received} of {plan.sampled} reply. A draw is void if "
        f"{2 * plan.tolerated} or fewer do; at most {plan.retries} of {plan.problem.draws} draws "
        f"are void with probability {percent(enough)}. κ is that of {plan.received} replies."
    )
    if plan.sampled - plan.tolerated <= 2 * plan.tolerated:
        yield (
            "Byzantine clients that stay silent on purpose can make rounds void; "
            "they cost time and do not harm the model."
        )
