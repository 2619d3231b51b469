"""What the strategy logs about suspects: who is new, why, and who is cleared."""

from collections.abc import Sequence
from logging import INFO, WARNING

from flwr.common.logger import log

from fedro.common.text import counted
from fedro.flower.session import Session
from fedro.server import Verdict, judge
from fedro.server.evidence import Evidence
from fedro.server.suspects import neighbors

MAX_NAMED = 5  # clients that sent the same update, in the log


def log_suspects(session: Session, new: Sequence[int], cleared: Sequence[int]) -> None:
    """Log the nodes that are new suspects, with the reason, and those that are cleared."""
    round_, ledger = session.current_round, session.ledger
    evidence = round_.state.evidence
    verdict = judge(evidence) if new else None
    for node in new:
        number = ledger.number(node)
        assert verdict is not None
        why = reason(evidence, verdict, number)
        text = "Node %d (client %d) is suspect since round %d: %s"
        log(WARNING, text, node, number, round_.round + 1, why)
    for node in cleared:
        text = "Node %d (client %d) is not suspect any more"
        log(INFO, text, node, ledger.number(node))


def reason(evidence: Evidence, verdict: Verdict, client: int) -> str:
    """Why a client is suspect, in words."""
    if evidence.flagged[client] < 0:
        others = sorted(neighbors(evidence.pairs)[client])
        named = ", ".join(map(str, others[:MAX_NAMED])) + " …" * (len(others) > MAX_NAMED)
        return f"it sends the same updates as {counted(len(others), 'other')} (clients {named})"
    total, recent = verdict.total, verdict.recent
    slopes = recent if abs(recent.z[client]) > abs(total.z[client]) else total
    slope, median = float(slopes.slope[client]), slopes.median
    how = "point against the others'" if slope < 0 else "agree less with the others'"
    if slope > median:
        how = "agree more with the aggregate than the others'"
    shown = f"{slope:.1f}".replace("-", "−")
    return f"its updates {how} (slope {shown}; others {median:.1f} ± {slopes.scale:.1f})"
