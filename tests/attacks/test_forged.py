"""What a stage may return, and what is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from attack_cases import (
    make,
    sent,
)
from fedro.attacks import (
    Forged,
    View,
    forge,
    parse_attack,
)


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda view: torch.zeros(3), r"sends shape \(3,\): need \(12,\)"),
        (lambda view: torch.zeros(3, 12), r"sends shape \(3, 12\)"),
        (lambda view: [view.full(0.0)], "must send 2 tensors"),
        (lambda view: [view.full(0.0)] * 3, "must send 2 tensors"),
        (lambda view: [view.full(0.0), torch.zeros(5)], "must send 2 tensors"),
        (lambda view: np.zeros(12), "must send 2 tensors"),
        (lambda view: None, "sends nothing"),
        (lambda view: Forged(None, view.model), "sends nothing"),
    ],
)
def test_wrong_messages(returned: Callable[[View], Any], message: str) -> None:
    @forge()
    def clumsy(view: View) -> Any:
        """Wrong."""
        return returned(view)

    with pytest.raises(ValueError, match=f"attack clumsy {message}"):
        parse_attack("clumsy").forge(view := make()).write(view.updates, view.byzantine)


@pytest.mark.usefixtures("table")
def test_all_ways_to_send() -> None:
    rows = torch.arange(24.0).reshape(2, 12)
    ways: list[Callable[[], Any]] = [
        lambda: rows,
        lambda: list(rows),
        lambda: (row for row in rows),
        lambda: Forged(iter(rows)),
    ]

    @forge()
    def way(view: View, *, number: int = 0) -> Any:
        """One of them."""
        return ways[number]()

    for number in range(len(ways)):
        assert torch.equal(sent(f"way(number={number})", make()), rows)
