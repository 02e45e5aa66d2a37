"""Ask many random questions about paths of dynamic values, of every way in which rows are kept.

What is asked without pruning reads whole values and leaves all to the engine: by that all others are judged. Rows have
keys with dots, keys that differ by case alone, empty keys, values of several types at one path, nulls and absent ones.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import tidelake
from tidelake.query.session import run
from tidelake.write import stager
from tidelake.write.alter import change_settings

ROWS, PART = 3_300, 1_100
COLUMNS = {"ts": "timestamp", "n": "long", "d": "dynamic", "d:a": "dynamic"}
TABLES = ("third", "second", "mixed", "hot")
KEYS = ("a", "b", "A", "a.b", "B", "c d", "é", "$x", "a:b", "text")
PATHS = ("a", "b", "A", "a.b", "A.b", "a.b.c", "B", "é", "b.a", "text", "['c d']", "['a.b']", "['$x']", "nowhere",
         "['a:b']", "a.A", "b[0]", "a['b']")  # fmt: skip
SCALARS: tuple[Any, ...] = (
    *(0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63), 2**64, 1.5, 1.0, -0.0, 123456.75, True, False, None, [], [1, "x"]),
    *("", "x", "X", "1", "1.0", "true", "null", "worker 7 done", "Worker 12 failed", "é", "ß", [{"a": 1}], {}),
)
LITERALS = ("1", "0", "1.5", "'x'", "'X'", "'1'", "''", "true", "'true'", "'worker 7 done'", "9007199254740993", "-1")


def value(chance: random.Random, depth: int = 0) -> Any:
    if depth < 3 and chance.random() < 0.35:
        return {chance.choice(KEYS): value(chance, depth + 1) for _ in range(chance.randrange(4))}
    return chance.choice(SCALARS)


def made(chance: random.Random, kind: str) -> list[dict[str, Any]]:
    known = [value(chance) for _ in range(40)]

    def one(n: int) -> Any:
        if kind == "few shapes":
            return {"a": n % 5, "b": {"a": f"worker {n % 9} done"}, "A": chance.choice((1, "1", None))}
        if kind == "many shapes":
            found = {key: value(chance) for key in KEYS if chance.random() < 0.6}
            return found | ({"": 1} if n == 77 else {}) | ({f"k{n}": n} if n % 3 == 0 else {})
        return None if n % 50 == 3 else chance.choice(known)

    return [{"ts": 1_700_000_000_000_000 + n * 1000, "n": n, "d": one(n), "d:a": {"b": n % 4}} for n in range(ROWS)]


def filled(lake: tidelake.Lake, rows: list[dict[str, Any]]) -> None:
    for name in TABLES:
        table = lake.create_table(
            name, COLUMNS, time="ts", format="tlm2" if name == "second" else "tlm3", flush_age="off"
        )
        step = 300 if name == "hot" else PART
        for start in range(0, ROWS, step):
            if name == "mixed":
                change_settings(table.handle, {"format": ("tlm2", "tlm3", "parquet")[start // PART]})
            table.append(rows[start : start + step])


def path(chance: random.Random, language: str) -> str:
    found = chance.choice(PATHS)
    if found.startswith("["):
        return f"d{found}"
    return f"d.{found}" if language == "kql" or chance.random() < 0.5 else f"d:{found}"


def kql(chance: random.Random) -> str:
    def leaf() -> str:
        at, literal, n = path(chance, "kql"), chance.choice(LITERALS), chance.randrange(ROWS)
        operator = chance.choice(
            ("==", "!=", ">", "<=", "has", "contains", "startswith", "!has", "endswith", "=~", "in")
        )
        text = literal if literal.startswith("'") else "'work'"
        return chance.choice(
            (
                f"{at} {operator} {literal}" if operator in ("==", "!=", ">", "<=") else f"n > {n}",
                f"tostring({at}) {operator} ({text})" if operator == "in" else f"tostring({at}) {operator} {text}",
                f"{at} {operator} {text}" if operator not in (">", "<=", "in") else f"isnull({at})",
                f"isnotnull({at})",
                f"isempty({at})",
                f"tolong({at}) {chance.choice(('==', '>', '<'))} 1",
                f"toreal({at}) >= 1.5",
                f"tobool({at})",
            )
        )

    where = leaf() if chance.random() < 0.6 else f"{leaf()} {chance.choice(('and', 'or'))} {leaf()}"
    if chance.random() < 0.2:
        where = f"not({where})"
    one, two = path(chance, "kql"), path(chance, "kql")
    aggregate = chance.choice(
        (
            f"sum(tolong({one}))",
            f"avg(toreal({one}))",
            f"countif(tostring({one}) == 'x')",
            f"dcount(tostring({one}))",
            f"array_sort_asc(make_set(tostring({one})))",
            f"array_sort_asc(make_list(tostring({one})))",
            f"percentile(toreal({one}), 50)",
            f"max(tostring({one}))",
        )
    )
    return chance.choice(
        (
            f"T | where {where} | count",
            f"T | where {where} | project n",
            f"T | where {where} | summarize c = count(), m = max(n) by tostring({one})",
            f"T | summarize c = count() by tostring({one})",
            f"T | where {where} | summarize c = count() by x = tostring({one}), y = tostring({two})",
            f"T | project n, x = {one}, y = {two}",
            f"T | where n % 7 == 3 | project n, x = tostring({one}), y = tolong({two}), z = toreal({one})",
            f"T | where n % 7 == 3 | project n, b = tobool({two}), x = {one}",
            f"T | summarize c = count(), least = min(tostring({one})), most = max(toreal({one})) by isnull({one})",
            f"T | summarize countif({where}), dcount(tostring({one}))",
            f"T | summarize c = count(), v = {aggregate} by isnull({one})",
            f"T | where {where} | summarize c = count(), v = {aggregate}",
            f"T | summarize c = count() by x = tostring({one}) | where c > 3 | summarize count(), sum(c)",
            f"T | distinct x = tostring({one})",
            f"T | summarize c = count() by x = tostring({one}) | top 3 by c desc, x asc",
            f"T | where {where} | sort by n asc | take 5 | project n, x = {one}",
            f"T | where {where} | summarize c = count() by x = toreal({one}) > 1",
            f"T | where {where} | project n, d | where n < 900",
            f"T | where {where} | project n, q = ['d:a'].b, x = {one}",
        )
    )


def sql(chance: random.Random) -> str:
    one, two = path(chance, "sql"), path(chance, "sql")
    literal = chance.choice(LITERALS)
    where = chance.choice(
        (
            f"{one} = {literal}",
            f"{one} is null",
            f"{one} is not null",
            f"({one})::string like '%work%'",
            f"({one})::string in ('x', '1', 'true')",
            f"not (({one})::string = 'x')",
            f"n < {chance.randrange(ROWS)}",
        )
    )
    return chance.choice(
        (
            f"select count(*) from T where {where}",
            f"select n, {one} as x, {two} as y from T where {where}",
            f"select ({one})::string as x, count(*) as c, count({two}) as e from T group by 1",
            f"select {one} as x, count(*) as c, max(n) as m from T where {where} group by 1",
            f"select count(*) as c, min(({one})::string) as x from T where {where}",
            f"select n, ({one})::string as x, ({two})::string as y from T where n < 700",
        )
    )


def answers(lake: tidelake.Lake, text: str, language: Any, *, prune: bool = True) -> list[str] | str:
    try:
        result = run(lake, text, language=language, engine="local", prune=prune)
        rows = result.to_arrow().to_pylist()  # a mean depends on the order of rows
        return sorted(
            repr([float(f"{each:.10g}") if isinstance(each, float) else each for each in row.values()]) for row in rows
        )
    except tidelake.TidelakeError as error:
        return f"{type(error).__name__} {error.kind}"


def check(folder: Path, seed: int, kind: str, questions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask of new rows, once some are deleted, and once what is left is compacted."""
    monkeypatch.setattr(stager, "BLOCK_ROWS", 450)
    chance = random.Random(f"{seed} {kind}")
    rows, refused = made(chance, kind), 0
    with tidelake.connect(folder, upkeep=False) as lake:
        filled(lake, rows)
        for step in ("new", "deleted", "compacted"):
            for at in range(questions):
                language, text = ("kql", kql(chance)) if at % 3 else ("sql", sql(chance))
                wanted = answers(lake, of("second", text), language, prune=False)
                refused += isinstance(wanted, str)
                for name in ("third", "third", *TABLES[1:], "mixed"):
                    assert answers(lake, of(name, text), language) == wanted, (name, text, step)
            for name in TABLES:
                if step == "new":
                    lake.table(name).delete("n >= 500 and n < 1300")
                elif step == "deleted":
                    lake.table(name).compact()
    assert refused < questions


def of(name: str, text: str) -> str:
    return text.replace("T |", f"{name} |").replace("from T", f"from {name}")


@pytest.mark.parametrize("kind", ["few shapes", "many shapes"])
def test_questions_about_paths_have_the_answers_of_whole_values(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(tmp_path, 1, kind, 3, monkeypatch)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(2, 10))
@pytest.mark.parametrize("kind", ["few shapes", "many shapes", "anything"])
def test_many_questions_about_paths_have_the_answers_of_whole_values(
    kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(tmp_path, seed, kind, 20, monkeypatch)
