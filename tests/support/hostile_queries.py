"""Ask queries that want too much, in a process of its own whose time and memory another one measures.

``python -m tests.support.hostile_queries LAKE ENGINE SECONDS MEMORY`` says ``ready`` once it has asked something small,
and for each name of a query that it reads how that ended, then that something small is still answered. It does not
measure: whoever starts it does.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import tidelake

STEPS = 2_000
LETTERS = 980_000  # of a text; a million is the limit


def _filled(make: Callable[[int], str], separator: str) -> str:
    parts: list[str] = []
    size = 0
    while size < LETTERS:
        parts.append(make(len(parts)))
        size += len(parts[-1]) + len(separator)
    return separator.join(parts)


SQL: dict[str, Callable[[], str]] = {
    "wide result": lambda: "select a.*, b.message as other from obs.logs a, obs.logs b, range(1000) r",
    "long result": lambda: "select a.id as x, b.id as y from range(100000) a(id), range(100000) b(id)",
    "endless count": lambda: "select count(*) from range(100000) a, range(100000) b, range(100000) c",
    "sort of everything": lambda: (
        "select a.id as x from range(30000) a(id), range(30000) b(id) order by b.id, a.id desc"
    ),
    "groups without end": lambda: (
        "select a.id * 100000 + b.id as x, count(*) from range(30000) a(id), range(30000) b(id) group by 1"
    ),
    "one list of all": lambda: "select collect_list(a.id) from range(30000) a(id), range(30000) b(id)",
    "text that is repeated": lambda: "select repeat('x', 1000000000) as x",
    "text that is padded": lambda: "select lpad('x', 2000000000, 'y') as x",
    "sequence": lambda: "select sequence(1, 1000000000) as x",
    "sequence of rows": lambda: "select explode(sequence(1, 1000000000)) as x",
    "result of 324 MB": lambda: "select repeat('x', 1000) as x from range(324000)",
    "text that rows repeat": lambda: "select repeat(message, cast(n * 1000 as int)) as x from obs.logs",
    "length that rows repeat": lambda: "select sum(length(repeat(message, 100000))) as x from obs.logs",
    "text that rows pad": lambda: "select sum(length(lpad(message, cast(n * 1000 as int), 'y'))) as x from obs.logs",
    "sequence of each row": lambda: "select sum(size(sequence(1, n * 1000))) as x from obs.logs",
    "text of rows that doubles": lambda: (
        "select sum(length(s)) from "
        + "(select s || s as s from " * 24
        + "(select message as s from obs.logs)"
        + ")" * 24
    ),
    "text of texts": lambda: (
        "select replace(replace(repeat('x', 1000), 'x', repeat('x', 1000)), 'x', repeat('x', 1000)) as x"
    ),
    "text that doubles": lambda: "select s from " + "(select s || s as s from " * 40 + "(select 'x' as s)" + ")" * 40,
    "list of numbers": lambda: f"select count(message) from obs.logs where n in ({_filled(str, ',')})",
    "list of texts": lambda: "select n from obs.logs where message in (" + _filled(lambda i: f"'a{i}'", ",") + ")",
    "many conditions": lambda: "select n from obs.logs where " + _filled(lambda i: f"n = {i}", " or "),
    "long sum": lambda: f"select {_filled(str, ' + ')} as n",
    "many columns": lambda: "select " + _filled(lambda i: f"n + {i} as c{i}", ", ") + " from obs.logs",
    "many unions": lambda: _filled(lambda i: f"select {i} as a", " union all "),
    "many brackets": lambda: "select " + "(" * (LETTERS // 2) + "1" + ")" * (LETTERS // 2),
    "many steps": lambda: (
        "with c0 as (select n from obs.logs)"
        + "".join(f", c{i} as (select n + 1 as n from c{i - 1})" for i in range(1, STEPS))
        + f" select * from c{STEPS - 1}"
    ),
    "deep query": lambda: "select n from " + "(select n + 1 as n from " * STEPS + "obs.logs" + ")" * STEPS,
}
KQL: dict[str, Callable[[], str]] = {
    "kql range": lambda: "range x from 1 to 1000000000 step 1",
    "kql range of a list": lambda: "print x = range(1, 1000000000, 1)",
    "kql repeated text": lambda: "print x = strrep('xxxxxxxxxx', 1000000000)",
    "kql list of texts": lambda: "obs.logs | where message in (" + _filled(lambda i: f"'a{i}'", ",") + ")",
    "kql many steps": lambda: "obs.logs | extend x = 1" + " | extend x = x + 1" * STEPS,
    "kql many filters": lambda: "obs.logs" + "".join(f" | where n != {i}" for i in range(STEPS)),
    "kql doubling": lambda: (
        "obs.logs | extend x = dynamic([1])"
        + "".join(f" | extend x = iff(n > {i}, array_concat(x, x), x)" for i in range(24))
        + " | where array_length(x) > 1 | count"
    ),
    "kql doubling text": lambda: "print x = 'x'" + " | extend x = strcat(x, x)" * 40,
    "kql doubling text of rows": lambda: (
        "obs.logs | extend x = message" + " | extend x = strcat(x, x)" * 24 + " | summarize sum(strlen(x))"
    ),
    "kql text that rows repeat": lambda: "obs.logs | extend x = strrep(strrep(message, 1024), 1024) | project x",
    "kql doubling sum": lambda: "obs.logs | extend x = n" + " | extend x = x + x" * 40 + " | where x > 1",
    "kql many brackets": lambda: "print " + "(" * (LETTERS // 2) + "1" + ")" * (LETTERS // 2),
    "kql long datatable": lambda: "datatable(a:long)[" + _filled(str, ",") + "] | count",
}
QUERIES = SQL | KQL


def main(where: str, engine: str, seconds: str, memory: str) -> None:
    with tidelake.connect(where) as lake:
        small = "select count(message), max(n) from obs.logs"
        lake.sql(small, engine=engine).to_arrow()
        print("ready", flush=True)
        for line in sys.stdin:
            name = line.strip()
            text, ask = QUERIES[name](), lake.kql if name in KQL else lake.sql
            began = time.monotonic()
            try:
                budget = {"seconds": float(seconds), "memory": memory}
                ended = {"rows": ask(text, engine=engine, budget=budget).to_arrow().num_rows}
            except tidelake.TidelakeError as error:
                ended = {"error": type(error).__name__, "kind": error.kind, "message": str(error)[:200]}
            except Exception as error:
                ended = {"raw": f"{type(error).__name__}: {str(error)[:300]}"}
            print(json.dumps(ended | {"seconds": round(time.monotonic() - began, 2)}), flush=True)
            print(json.dumps(lake.sql(small, engine=engine).to_arrow().num_rows), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
