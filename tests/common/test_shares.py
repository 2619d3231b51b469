"""Shares of a total, such as "10%"."""

import pytest

from fedro.cli.common import count_or_share
from fedro.common.shares import is_share, parse_share, share_of


def test_shares_are_fractions() -> None:
    assert parse_share("dropout", "5%") == parse_share("dropout", " 0.05") == 0.05
    for wrong in ("", "%", "x", "nan", "1e99999999", "5%%"):
        with pytest.raises(ValueError, match="dropout="):
            parse_share("dropout", wrong)


def test_shares_of_a_total_are_exact() -> None:
    assert share_of("byzantine", "10%", 155, of="the clients") == 16
    assert share_of("available", " 10% ", 155, of="the clients", up=False) == 15
    assert share_of("byzantine", "29%", 100, of="the clients") == 29, "not 30: 0.29·100 is 29"
    assert share_of("byzantine", 7, 155, of="the clients") == 7
    for wrong in ("ten", "10", "101%", "-1%", "%"):
        with pytest.raises(ValueError, match="a share of the clients from 0% to 100%"):
            share_of("byzantine", wrong, 155, of="the clients")


def test_the_command_line_reads_both() -> None:
    assert count_or_share("byzantine", "15") == 15
    assert count_or_share("byzantine", " 10% ") == "10%"
    assert is_share("10%")
    assert not is_share(10)
    with pytest.raises(ValueError, match=r"byzantine='1\.5': write a whole number, or a share"):
        count_or_share("byzantine", "1.5")
