"""A log for TensorBoard."""

from collections.abc import Callable
from pathlib import Path

from fedro.rounds import Round


def tensorboard_log(path: Path) -> Callable[[Round], None]:
    """Something that takes rounds and writes what can be drawn over them."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError(
            "--tensorboard needs the package tensorboard: pip install 'fedro[tensorboard]'"
        ) from None
    writer = SummaryWriter(str(path), flush_secs=5)

    def log(done: Round) -> None:
        values: dict[str, float | None] = {
            "loss/train": done.train_loss,
            "byzantine/sampled": len(done.byzantine),
            "error/kappa seen": done.kappa_seen,
            "error/kappa proved": done.kappa_proved,
            **{f"seconds/{part}": value for part, value in done.seconds.items()},
        }
        if done.score is not None:
            values |= {f"test/{key}": value for key, value in done.score._asdict().items()}
        for name, value in values.items():
            if value is not None:
                writer.add_scalar(name, value, done.round)
        writer.flush()

    return log
