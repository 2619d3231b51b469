"""Tables of named things."""

import pytest

from fedro.common.registry import Table


def test_table_names_the_nearest() -> None:
    table: Table[int] = Table("rule")
    table["median"] = 1
    with pytest.raises(ValueError, match="unknown rule 'medain': did you mean 'median'"):
        table["medain"]
    with pytest.raises(ValueError, match="already taken"):
        table["median"] = 2
    assert dict(table) == {"median": 1}
