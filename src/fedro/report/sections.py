"""All parts of the report, in the order in which they are read."""

from fedro.report import comparison, draws, events, progress
from fedro.report.chart import Section
from fedro.report.series import Study

PARTS = (
    comparison.overview,
    comparison.heat,
    progress.accuracy,
    progress.clients,
    progress.loss,
    progress.backdoor,
    draws.overruns,
    progress.kappa,
    events.ledger,
    events.choices,
    events.time,
    draws.clients,
)


def sections(study: Study) -> list[Section]:
    """Those that have something to say."""
    return [section for part in PARTS if (section := part(study)) is not None]
