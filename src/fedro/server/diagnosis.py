"""Why a run has failed although it is complete: void rounds and losses that are not finite.

Both functions read the lines of rounds.jsonl. Older lines have no "diverged", and those of a
deployment do not tell who is Byzantine.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fedro.common.text import counted
from fedro.rules import Rule
from fedro.server.step import NOT_FINITE, is_robust

Line = Mapping[str, Any]

MAX_VOID_ROUNDS = 10  # so many rounds without progress at the end, and the run has failed
STRONG = 10.0  # an aggregate this much further from the honest mean, squared, than honest updates
MAX_REASONS = 2


def diagnose(
    rounds: Sequence[Line], *, tolerated: int, rule: Rule, server_lr: float = 1.0
) -> str | None:
    """Say what is wrong with a run that is complete, and the most likely cause.

    A run has failed if all its rounds or the last ten were void or used no honest update, or if the
    loss of every honest client in the last round is not finite.

    Args:
        rounds: The lines of rounds.jsonl, as `Round.as_dict` makes them.
        tolerated: b̂.
        rule: The rule that aggregated.
        server_lr: The server learning rate, which may be the cause if it is above 1.

    Returns:
        A few sentences, or None if the run has not failed.
    """
    failed = 0
    while failed < len(rounds) and _without_progress(rounds[-1 - failed]):
        failed += 1
    enough = failed >= min(len(rounds), MAX_VOID_ROUNDS)
    if not failed or not (enough or _all_diverged(rounds[-1])):
        return None
    ended = rounds[len(rounds) - failed :]
    which = _which(failed, len(rounds))
    if all(line["void"] is not None for line in ended):
        were = "was" if failed == 1 else "were"
        changed = "never changed" if failed == len(rounds) else "did not change any more"
        event = f"{which} {were} void: the model {changed}."
    else:
        event = f"{which} made no progress: no honest loss was finite, or no honest update usable."
    return f"{event} {_cause(rounds, ended, tolerated, rule, server_lr)}"


def divergence(
    rounds: Sequence[Line], *, tolerated: int, rule: Rule, server_lr: float = 1.0
) -> str | None:
    """Say if losses became NaN or Inf in the last of these rounds, and not in the one before.

    The arguments are those of `diagnose`; the last line may be that of a round in a running run.
    """
    line = rounds[-1]
    before = rounds[-2].get("diverged") if len(rounds) > 1 else 0
    if not line.get("diverged") or before:
        return None
    honest = counted(len(_honest(line)), "honest client")
    return (
        f"round {line['round']}: the loss of {line['diverged']} of {honest} is not finite. "
        f"{_cause_of_divergence(rounds, tolerated, rule, server_lr)}"
    )


def _which(failed: int, rounds: int) -> str:
    if failed == rounds:
        return "The only round" if rounds == 1 else f"All {rounds} rounds"
    last = "The last" if failed == 1 else f"The last {failed}"
    return f"{last} of {rounds} rounds"


def _without_progress(line: Line) -> bool:
    """Whether a round was void, or used no update of an honest client."""
    if line["void"] is not None or _all_diverged(line):
        return True
    honest = _honest(line)
    return bool(honest) and honest <= {*line["rejected"]}


def _honest(line: Line) -> set[str]:
    """The sampled clients that are not known to be Byzantine."""
    byzantine = {str(client) for client in line["byzantine"] or ()}
    return {str(client) for client in line.get("sampled", ())} - byzantine


def _all_diverged(line: Line) -> bool:
    return bool(line.get("diverged")) and line["diverged"] == len(_honest(line))


def _diverged(line: Line) -> bool:
    """Whether a loss or an update of an honest client was not finite."""
    rejected = {client for client, reason in line["rejected"].items() if reason == NOT_FINITE}
    known = line["byzantine"] is not None
    return bool(line.get("diverged")) or (known and bool(rejected & _honest(line)))


def _cause(
    rounds: Sequence[Line], ended: Sequence[Line], tolerated: int, rule: Rule, server_lr: float
) -> str:
    """The most likely cause of rounds without progress at the end of a run."""
    last = ended[-1]
    if _diverged(last):
        return _cause_of_divergence(rounds, tolerated, rule, server_lr)
    tolerated = last.get("tolerated") or tolerated
    invited = len(last.get("sampled", ()))
    usable = invited - len(last["missing"]) - len(last["rejected"])
    if invited and usable <= 2 * tolerated:
        return _too_few_replies(last, invited, usable, tolerated)
    return f"The rule {rule} could not use the updates: {last['void']}."


def _too_few_replies(line: Line, invited: int, usable: int, tolerated: int) -> str:
    lost = Counter([*line["missing"].values(), *line["rejected"].values()])
    reasons = "; ".join(f"{times}× {why}" for why, times in lost.most_common(MAX_REASONS))
    text = (
        f"In the last round, {usable} of {invited} replies could be used ({reasons}), but "
        f"tolerating {tolerated} needs at least {2 * tolerated + 1}."
    )
    if invited <= 3 * tolerated:
        return (
            f"{text} Sample at least {3 * tolerated + 1} clients: then the round is usable even if "
            f"{tolerated} do not answer."
        )
    return f"{text} Find out why so many replies are lost, or sample more clients."


def _cause_of_divergence(
    rounds: Sequence[Line], tolerated: int, rule: Rule, server_lr: float
) -> str:
    """Why losses of honest clients are not finite: the attack, or the learning rate."""
    first = next(number for number, line in enumerate(rounds) if _diverged(line))
    for line in rounds[:first]:
        byzantine = len(line["byzantine"] or ())
        overrun = byzantine > tolerated
        attacked = bool(byzantine) and (line["takeover"] or _moved_far(line))
        if attacked and not is_robust(rule):
            return (
                f"The attack destroyed the model, most likely in round {line['round']}: the rule "
                f"{rule} withstands no Byzantine client. Use a robust rule, such as "
                "nnm | trimmed_mean."
            )
        if attacked and overrun:
            return (
                f"The attack destroyed the model, most likely in round {line['round']}, which "
                f"sampled {byzantine} Byzantine clients and tolerates {tolerated}. Let "
                "`fedro plan` choose how many to sample and to tolerate."
            )
        if _not_finite_from_finite(line):
            return (
                f"In round {line['round']}, the rule {rule} made NaN or Inf of finite updates. If "
                "the rule is your own, look for a division by zero in it; otherwise the updates "
                "are too large for float32."
            )
    lr = rounds[first].get("lr")
    known = isinstance(lr, (int, float)) and math.isfinite(lr)
    rate = f"client_lr={lr:g}" if known else "the clients' learning rate"
    if first and server_lr > 1:  # the server's steps come after the first round
        rate = f"server_lr={server_lr:g} or {rate}"
    return (
        f"The most likely cause is that {rate} is too large: lower it. Otherwise look for NaN in "
        "the model and the data."
    )


def _not_finite_from_finite(line: Line) -> bool:
    """Whether the aggregate was not finite although the honest updates were; JSON has null."""
    error, variance = line.get("error"), line.get("variance")
    if line["void"] is not None or variance is None or not math.isfinite(variance):
        return False
    return error is None or not math.isfinite(error)


def _moved_far(line: Line) -> bool:
    """Whether the aggregate was much further from the honest mean than honest updates are."""
    if line["void"] is not None:
        return False
    error, variance = line.get("error"), line.get("variance")
    if error is None or variance is None:  # JSON has no infinity
        return True
    return not math.isfinite(error) or error > STRONG * variance
