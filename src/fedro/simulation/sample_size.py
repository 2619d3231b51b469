"""n̂ and b̂ of an experiment: from the plan, or as given, with what is to be said about them."""

from fedro.common.text import percent
from fedro.planning import plan
from fedro.planning.tails import all_draws_within
from fedro.simulation.experiment import Experiment, ExperimentError

FEW = 10  # clients sampled a round where nobody is bad, and the plan has nothing to say


def choose_sample(experiment: Experiment, clients: int) -> tuple[int, int, list[str]]:
    """n̂ and b̂, from the plan where they are not given, and what to say about them."""
    sampled, tolerated = experiment.sampled, experiment.tolerated
    if sampled is not None and sampled > clients:
        raise ExperimentError(f"sampled={sampled}: there are only {clients} clients")
    if experiment.byzantine == 0 and tolerated is None:  # any number is safe
        return sampled or min(clients, FEW), 0, []
    if tolerated is None:
        chosen = plan(
            clients=clients,
            byzantine=experiment.byzantine,
            rounds=experiment.rounds,
            confidence=experiment.confidence,
            bound=experiment.bound,
            sampled=sampled,
        )
        return chosen.sampled, chosen.tolerated, []
    assert sampled is not None  # the experiment has seen to it
    safe = all_draws_within(tolerated, clients, experiment.byzantine, sampled, experiment.rounds)
    if safe >= experiment.confidence:
        return sampled, tolerated, []
    return sampled, tolerated, [unsafe(experiment, clients, safe)]


def unsafe(experiment: Experiment, clients: int, safe: float) -> str:
    """That a choice of n̂ and b̂ is not safe, in plain words."""
    return (
        f"Not safe: with {experiment.byzantine} bad clients of {clients}, sampling "
        f"{experiment.sampled} and tolerating {experiment.tolerated}, all {experiment.rounds} "
        f"rounds stay within what is tolerated with probability {percent(safe)} only (wanted "
        f"{percent(experiment.confidence)}). `fedro plan --clients {clients} --byzantine "
        f"{experiment.byzantine} --rounds {experiment.rounds}` says what would be safe."
    )
