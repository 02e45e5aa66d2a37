"""Values in the places of a question in SQL: whatever is in them, they come back as they were."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelake
from tidelake.errors import InvalidInputError
from tidelake.query.parameters import count_places, with_values


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tidelake.Lake:
    return tidelake.connect(tmp_path_factory.mktemp("parameters") / Path("lake"), upkeep=False)


VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False),
    st.sampled_from(["'", "''", "\\", "\\'", "' or 1=1 --", "?", "/* ? */", "a\nb", "\\u0041", "é"]),
)


@given(st.lists(VALUES, min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_values_come_back_as_they_were(lake: tidelake.Lake, values: list[Any]) -> None:
    text = "select " + ", ".join(f"? as v{at}" for at in range(len(values))) + " -- ? is no place here"
    assert count_places(text) == len(values)
    (row,) = lake.sql(with_values(text, values)).to_arrow().to_pylist()
    assert list(row.values()) == values


def test_times_and_decimals(lake: tidelake.Lake) -> None:
    values = [datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), date(2026, 1, 2), Decimal("-12.340"), b"\x00\xff"]
    (row,) = lake.sql(with_values("select ? a, ? b, ? c, ? d", values)).to_arrow().to_pylist()
    assert list(row.values()) == values


def test_places_are_not_inside_of_texts_names_and_comments() -> None:
    assert count_places("select '?', \"?\", `?`, ? /* ? */ -- ?") == 1
    with pytest.raises(InvalidInputError, match="as many values"):
        with_values("select ?", [])
    with pytest.raises(InvalidInputError, match="got=list"):
        with_values("select ?", [[1]])
