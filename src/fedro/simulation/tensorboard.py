"""Log the rounds of a run for TensorBoard."""

from collections.abc import Callable
from pathlib import Path

from fedro.server import Round


def tensorboard_log(path: Path) -> Callable[[Round], None]:
    """A function that writes the numbers of a round to a TensorBoard log in this folder."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError(
            "--tensorboard needs the package tensorboard: pip install 'fedro[tensorboard]'"
        ) from None
    writer = SummaryWriter(str(path), flush_secs=5)

    def log(round_: Round) -> None:
        values: dict[str, float | None] = {
            "loss/train": round_.train_loss,
            "byzantine/sampled": None if round_.byzantine is None else len(round_.byzantine),
            "error/kappa seen": round_.kappa_seen,
            "error/kappa proved": round_.kappa_proved,
            **{f"seconds/{part}": value for part, value in round_.seconds.items()},
        }
        if round_.score is not None:
            values |= {f"test/{key}": value for key, value in round_.score._asdict().items()}
        for name, value in values.items():
            if value is not None:
                writer.add_scalar(name, value, round_.round)
        writer.flush()

    return log
