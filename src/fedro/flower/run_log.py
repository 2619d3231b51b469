"""What the strategy logs at the start and at the end of a run, in the manner of Flower's own."""

import io
from logging import INFO, WARNING

from flwr.app import ArrayRecord
from flwr.common.logger import log
from flwr.serverapp.strategy import Result

from fedro.common.text import counted
from fedro.flower.layout import ArrayLayout
from fedro.flower.session import Session
from fedro.flower.settings import StrategySettings
from fedro.rules.kappa import kappa_text


def log_start(num_rounds: int, arrays: ArrayRecord, layout: ArrayLayout) -> None:
    """Log the number of rounds, the size of the model, and what of it is not trained."""
    megabytes = sum(len(array.data) for array in arrays.values()) / 2**20
    log(INFO, "Starting FedRo strategy:")
    log(INFO, "\t├── Number of rounds: %d", num_rounds)
    log(INFO, "\t├── ArrayRecord (%.2f MB, %s)", megabytes, counted(len(arrays), "array"))
    if names := layout.untrained:
        text = "Not trained, because they hold integers: %s. The server keeps its own values."
        shown = ", ".join(map(repr, names[:5])) + (" …" if len(names) > 5 else "")
        log(WARNING, text, shown)


def log_summary(settings: StrategySettings) -> None:
    """Log the plan, the rule and the run folder."""
    plan, rule = settings.plan, settings.rule
    log(INFO, "\t├──> Plan: of %d clients %d may be Byzantine", plan.clients, plan.byzantine)
    log(INFO, "\t│\t└── each round invites %d, tolerates %d", plan.sampled, plan.tolerated)
    log(INFO, "\t├──> Rule: %s, server learning rate %g", rule, settings.server_lr)
    kappa = rule.kappa(plan.received, plan.tolerated)
    log(INFO, "\t│\t└── %s", kappa_text(kappa, plan.kappa_best))
    if settings.quorum is not None:
        log_quorum(settings)
    log(INFO, "\t├──> Run folder: %s", settings.folder or "none")
    log(INFO, "\t└──> Records: '%s' and '%s'", settings.arrays_key, settings.config_key)


def log_quorum(settings: StrategySettings) -> None:
    """Log when a round goes on without all replies, and what that costs."""
    plan, quorum = settings.plan, settings.quorum
    assert quorum is not None
    replies = plan.sampled - quorum.late
    kappa = settings.rule.kappa(replies, plan.tolerated)
    text = "\t├──> Quorum: after %g s, %d of %d replies are enough"
    log(INFO, text, quorum.seconds, replies, plan.sampled)
    cost = "no κ is proved" if kappa is None else f"κ = {kappa:.4g} is proved for this rule"
    log(INFO, "\t│\t└── with so few replies %s; late honest clients count as missing", cost)


def log_end(session: Session, result: Result, seconds: float) -> None:
    """Log the metrics, the seed, which was secret until now, rejected replies and suspects."""
    log(INFO, "")
    log(INFO, "Strategy execution finished in %.2fs", seconds)
    log(INFO, "The seed of the draws was %d; the run used %d draws", session.seed, session.draws)
    log(INFO, "")
    log(INFO, "Final results:")
    log(INFO, "")
    for line in io.StringIO(str(result)):
        log(INFO, "\t%s", line.rstrip("\n"))
    for node, record in session.ledger.nodes.items():
        if record.rejected:
            reasons = "; ".join(f"{times}× {why}" for why, times in record.rejected.items())
            text = "Node %d (client %d): %d of %d replies rejected: %s"
            log(WARNING, text, node, record.number, record.rejections, record.invited, reasons)
    for node, record in session.ledger.nodes.items():
        if record.suspect_since is not None:
            text = "Node %d (client %d) is suspect since round %d; `fedro suspects` shows why"
            log(WARNING, text, node, record.number, record.suspect_since + 1)
