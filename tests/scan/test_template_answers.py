"""Show that templates answer tests of texts as the texts themselves do, and leave open only what they must."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelake
from tests.support.strategies import examples
from tidelake.format import template_pages, templates
from tidelake.model.predicate import (
    And,
    Equals,
    InSet,
    Not,
    Or,
    Predicate,
    StartsWith,
    StringContains,
    StringHas,
    StringMatches,
    text_holds,
)
from tidelake.query.session import run
from tidelake.scan import block_reading
from tidelake.scan.template_answers import judged

PIECES = st.sampled_from(["disk", "Rack", "rack", " ", "7", "07", "a1", "1a", "é", "ß", "ſ", "K", "-", "/", "on", "x"])
TEXTS = st.lists(PIECES, max_size=6).map("".join)
LEAVES = st.one_of(
    TEXTS.map(lambda text: StringHas("line", text)),
    st.builds(lambda text, cased: StringContains("line", text, cased), TEXTS, st.booleans()),
    st.builds(lambda text, cased: StartsWith("line", text, cased), TEXTS, st.booleans()),
    TEXTS.map(lambda text: Equals("line", text)),
    st.lists(TEXTS, max_size=3).map(lambda texts: InSet("line", tuple(texts))),
    st.just(StringMatches("line", "rack [0-9]")),
)
TESTS: st.SearchStrategy[Predicate] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: And(tuple(parts))),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: Or(tuple(parts))),
        inner.map(Not),
    ),
    max_leaves=4,
)


def passes(where: Predicate, text: str) -> bool:
    """Answer for one text, plainly."""
    match where:
        case And(parts):
            return all(passes(part, text) for part in parts)
        case Or(parts):
            return any(passes(part, text) for part in parts)
        case Not(part):
            return not passes(part, text)
        case Equals(_, value):
            return text == value
        case InSet(_, values):
            return text in values
        case StringMatches():
            return any(f"rack {digit}" in text for digit in "0123456789")
        case StringHas() | StringContains() | StartsWith():
            return text_holds(where, text)
        case _:
            raise AssertionError(where)


@pytest.mark.parametrize("every_word", [False, True])
def test_templates_never_say_what_a_text_denies(every_word: bool) -> None:
    @examples(400)
    @given(st.lists(TEXTS, min_size=1, max_size=8), TESTS)
    def check(texts: list[str], where: Predicate) -> None:
        encoding = templates._Encoding(every_word)
        made = encoding.block(pa.array(texts, pa.utf8()))
        assert made is not None
        lines = template_pages.Dictionary(encoding.templates.texts(), encoding.words.texts(), every_word=every_word)
        all_pass, may = judged(where, lines)
        assert not (all_pass & ~may).any()
        for text, number in zip(texts, made.templates.tolist(), strict=True):
            found = passes(where, text)
            assert found or not all_pass[number], (text, where)
            assert not found or may[number], (text, where)

    check()


SAID = [
    "Overheated disk on rack 17, moved to mail",
    "Overheated disk on rack 3, moved to index",
    "overheated disks on rack 3",
    "job 17 overheated",
    "user x17disk",
    "plain words alone",
]


@pytest.mark.parametrize(
    ("where", "sure", "possible"),
    [
        (StringHas("line", "overheated"), {0, 1, 2, 3}, set()),
        (StringHas("line", "disk"), {0, 1}, set()),
        (StringHas("line", "disk on rack"), {0, 1}, set()),
        (StringHas("line", "rack 3"), set(), {0, 1, 2}),
        (StringHas("line", "17"), set(), {0, 1, 2, 3, 4}),
        (StringContains("line", "erheated disk on ra"), {0, 1}, set()),
        (StringContains("line", "isk"), {0, 1, 2}, {3, 4}),
        (StringContains("line", ", "), {0, 1}, set()),
        (StartsWith("line", "job 1"), set(), {3}),
        (Not(StringHas("line", "disk")), {2, 3, 4, 5}, set()),
        (Equals("line", "job 4 overheated"), set(), {3}),
        (Equals("line", "plain words alone"), {5}, set()),
    ],
)
def test_templates_leave_open_only_what_variables_decide(where: Predicate, sure: set[int], possible: set[int]) -> None:
    encoding = templates._Encoding(False)
    made = encoding.block(pa.array(SAID, pa.utf8()))
    assert made is not None
    lines = template_pages.Dictionary(encoding.templates.texts(), encoding.words.texts(), every_word=False)
    all_pass, may = (each[made.templates] for each in judged(where, lines))
    assert set(np.flatnonzero(all_pass)) == sure
    assert set(np.flatnonzero(may & ~all_pass)) == possible


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with tidelake.connect(tmp_path_factory.mktemp("lake")) as lake:
        columns = {"ts": "timestamp", "n": "long", "line": "string"}
        rows = [
            {
                "ts": 1_700_000_000_000_000 + n,
                "n": n,
                "line": None
                if n % 97 == 5
                else f"Overheated disk {n} on rack {n % 40}"
                if n % 500 == 7
                else f"job {n * 7919 % 100_003} took {n % 17} ms on node{n % 9}",
            }
            for n in range(12_000)
        ]
        table = lake.create_table("lines", columns, time="ts", format="tlm3", flush_age="off")
        for start in range(0, 12_000, 4_000):
            table.append(rows[start : start + 4_000])
        lake.create_table("deleted", columns, time="ts", format="tlm3", flush_age="off").append(rows)
        lake.table("deleted").append([{"ts": 1, "n": -1, "line": "hot overheated 1"}])
        lake.table("deleted").delete("n >= 1000 and n < 1600")
        yield lake


COUNTED = (
    "line has 'overheated'",
    "line contains 'rheated dis'",
    "line has 'job' and n < 100000",
    "line has 'overheated' and n > 5000",
    "line has 'overheated' and ts > datetime(2023-11-14T22:13:20.006Z)",
    "not(line has 'overheated')",
    "line !has 'job'",
    "line has 'rack 7'",
    "line has 'job' or line has 'disk'",
    "line has 'job' or n < 700",
    "line has 'nowhere'",
    "line startswith 'overheated' and line !contains 'rack 1'",
    "isnull(line) or line has 'disk'",
    "line == 'Overheated disk 507 on rack 27'",
)


@pytest.mark.parametrize("table", ["lines", "deleted"])
@pytest.mark.parametrize("asked", COUNTED)
def test_counts_by_template_are_those_of_all_rows(lake: Any, table: str, asked: str) -> None:
    text = f"{table} | where {asked} | count"
    wanted = run(lake, text, language="kql", prune=False).to_arrow().column(0).to_pylist()
    for _ in range(3):  # the third time from what is kept
        assert lake.kql(text).to_arrow().column(0).to_pylist() == wanted


def test_no_text_is_read_to_count_what_templates_decide(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for reading in ("few", "looked_through"):  # no row can be read
        monkeypatch.setattr(block_reading.Reading, reading, None)
    for asked, count in (("line has 'overheated'", 24), ("line contains 'isk'", None), ("line has 'nothing'", 0)):
        text = f"lines | where {asked} | count"
        if count is None:
            with pytest.raises(TypeError):
                lake.kql(text).to_arrow()
        else:
            assert lake.kql(text).to_arrow().column(0).to_pylist() == [count]
