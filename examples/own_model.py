"""Train your own model on your own data under attack, and save it.

    python examples/own_model.py

Model and data exist only in this script, so they are passed as objects. A configuration would name
them as `dataset = "own_model:sensors"` and `model = "own_model:Net"`.
"""

import torch
from safetensors.torch import save_file
from torch import nn

import fedro


def sensors(clients: int = 30, seed: int = 0):
    """Yield (x_train, y_train, x_test, y_test) for each client: waves and their kind."""
    rng = torch.Generator().manual_seed(seed)
    time = torch.linspace(0, 1, 64)
    for client in range(clients):
        y = torch.randint(3, (80,), generator=rng)
        phase = torch.rand(80, 1, generator=rng) + time * (2 + client % 3)  # own frequency
        shapes = [(2 * torch.pi * phase).sin(), 2 * (phase % 1) - 1, (phase % 1 < 0.5) * 2.0 - 1]
        x = torch.stack(shapes)[y, torch.arange(80)] + 0.5 * torch.randn(80, 64, generator=rng)
        yield x[:60, None], y[:60], x[60:, None], y[60:]


class Net(nn.Sequential):
    """A small convolutional network for one channel of 64 numbers."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__(
            nn.Conv1d(1, 16, 7, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(8),
            nn.Flatten(),
            nn.Linear(128, classes),
        )


def main() -> None:
    """Train with four Byzantine clients of thirty."""
    from fedro.data import from_clients

    experiment = fedro.Experiment(byzantine=4, attack="optimal_foe", rounds=25, client_lr=0.3)
    for rule in ("mean", "nnm | trimmed_mean"):
        setup = fedro.prepare(
            experiment.replace(rule=rule), federation=from_clients(sensors()), model=Net()
        )
        *_, last = fedro.run(setup)
        print(f"{rule:20} {last.final.accuracy:.1%}, worst clients {last.final.worst:.1%}")
    module = setup.module(last.state)  # the trained Net
    save_file(module.state_dict(), "own_model.safetensors")


if __name__ == "__main__":
    main()
