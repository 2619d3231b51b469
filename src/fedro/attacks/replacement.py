"""Model replacement: bad clients send so much of their own update that the mean becomes theirs."""

from collections.abc import Iterator

import torch
from torch import Tensor

from fedro.attacks.table import forge, proper_share, train
from fedro.attacks.view import View


@train(check=proper_share("constrain", "alpha"), source="Bagdasaryan et al. 2020")
def constrain(*, alpha: float) -> float:
    """What training gives with alpha·loss + (1−alpha)·(the distance from the server's model).

    "Constrain and scale": what is sent is shorter, and passes where lengths are looked at.
    """
    return 1 - alpha


@forge(knows="own update", source="Bagdasaryan et al. 2020")
def scaling(view: View, *, factor: float | None = None) -> Iterator[Tensor]:
    """Each its own update, times a factor; by default n̂/(γ_s·|B_t|).

    With that, plain averaging moves the model to the mean of theirs, and then by the part of the
    step that is due to the honest clients. A message is valid until the next one is asked for.
    """
    bad = len(view.byzantine)
    times = view.sampled / (view.server_lr * bad) if factor is None else factor
    message = view.full(times)
    if factor is None and view.trained is not None:
        message[view.trained :] = view.sampled / bad  # the server moves statistics with a step of 1
    factors = message.clone()
    for number in range(bad):
        yield torch.mul(view.own(number), factors, out=message)
