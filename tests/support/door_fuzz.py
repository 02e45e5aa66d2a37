"""Ask a lake a great many questions that try to reach a file outside it, in a process of its own.

``python -m tests.support.door_fuzz LAKE FOLDER SEED COUNT ENGINE`` prints how many questions were answered and how many
refused, and what was raised that is no error of ours. ``FOLDER`` holds files that must stay untouched; ``read`` as the
engine reads one of them plainly, to show that the watch sees it. It does not watch: whoever starts it does.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

import tidelake
from tidelake.query.sql.allowed import FUNCTION_NAMES

FORMS = ("csv", "parquet", "text", "json", "orc", "avro", "binaryFile", "delta", "tidelake")
CLASSES = ("reflect", "java_method", "try_reflect", "from_protobuf", "to_protobuf", "read_files", "ai_query", "sql")


class Maker:
    """Make questions out of a grammar that is full of paths."""

    def __init__(self, seed: int, folder: str) -> None:
        self._random = random.Random(seed)
        self._paths = [f"{folder}/{name}" for name in ("canary.csv", "canary.parquet", "canary.json", "*", "")]
        engine = {row[0] for row in duckdb.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()}
        self._functions = sorted({name for name in engine | FUNCTION_NAMES if name.isidentifier()} | set(CLASSES))
        self._allowed = sorted(FUNCTION_NAMES)

    def question(self) -> tuple[str, str]:
        """Return a language and a text."""
        return ("sql", self._sql(3)) if self._random.random() < 0.7 else ("kql", self._kql())

    def _one_of(self, *ways: Callable[[], str]) -> str:
        return self._random.choice(ways)()

    def _path(self) -> str:
        path = self._random.choice(self._paths)
        return self._random.choice([path, path, f"file://{path}", f"file:{path}", f"/proc/self/root{path}"])

    def _text(self) -> str:
        return "'" + self._random.choice([self._path(), "a", "$.a", "1", f"SELECT * FROM '{self._path()}'"]) + "'"

    def _function(self) -> str:
        return self._random.choice(self._allowed if self._random.random() < 0.8 else self._functions)

    def _call(self, depth: int) -> str:
        arguments = [self._value(depth - 1) for _ in range(self._random.randrange(4))]
        return f"{self._function()}({', '.join(arguments)})"

    def _value(self, depth: int) -> str:
        if depth <= 0:
            return self._one_of(self._text, lambda: "service", lambda: "1", lambda: "attributes:a", lambda: "null")
        return self._one_of(
            self._text,
            lambda: "service",
            lambda: self._call(depth),
            lambda: self._call(depth),
            lambda: f"(SELECT max(service) FROM {self._source(depth - 1)})",
            lambda: f"{self._value(depth - 1)} || {self._value(depth - 1)}",
            lambda: f"cast({self._value(depth - 1)} AS {self._random.choice(['string', 'double', 'variant', 'date'])})",
        )

    def _source(self, depth: int) -> str:
        return self._one_of(
            lambda: "obs.logs",
            lambda: self._text(),
            lambda: f"`{self._path()}`",
            lambda: f'"{self._path()}"',
            lambda: f"{self._random.choice(FORMS)}.`{self._path()}`",
            lambda: self._call(max(depth, 1)),
            lambda: f"obs.logs, LATERAL {self._call(max(depth, 1))}",
            lambda: f"obs.logs LATERAL VIEW {self._call(max(depth, 1))} t AS x",
            lambda: f"({self._sql(depth - 1)}) s" if depth > 0 else "obs.logs",
        )

    def _sql(self, depth: int) -> str:
        return self._one_of(
            lambda: f"SELECT {self._value(depth)} AS a FROM {self._source(depth)}",
            lambda: f"SELECT * FROM {self._source(depth)} WHERE {self._value(depth)} = {self._value(depth - 1)}",
            lambda: f"SELECT {self._value(depth)} AS a",
            lambda: f"WITH c AS ({self._sql(depth - 1) if depth > 0 else 'SELECT 1 AS a'}) SELECT * FROM c",
            lambda: f"FROM {self._source(depth)}",
            lambda: f"COPY (SELECT 1) TO {self._text()}",
            lambda: f"ATTACH {self._text()}",
            lambda: f"SELECT 1; COPY obs.logs TO {self._text()}",
            lambda: f"SELECT TRANSFORM(service) USING {self._text()} FROM obs.logs",
        )

    def _kql(self) -> str:
        text = self._text()
        return self._one_of(
            lambda: f"externaldata(a:string)[{text}]",
            lambda: f"externaldata(a:string)[h@{text}] with (format='{self._random.choice(FORMS)}')",
            lambda: f"obs.logs | extend a = {self._call(2)}",
            lambda: f"obs.logs | evaluate {self._function()}({text})",
            lambda: f"{self._function()}({text}) | take 1",
            lambda: f"obs.logs | join ({self._function()}({text})) on service",
            lambda: f"['{self._path()}'] | count",
            lambda: f"external_table({text})",
            lambda: f"let f = (p:string) {{ {self._function()}(p) }}; f({text})",
            lambda: f"obs.logs | where service matches regex {text} or service == {self._call(1)}",
        )


def ask_all(lake: tidelake.Lake, maker: Maker, count: int, engine: str) -> dict[str, Any]:
    """Ask so many questions; return how many were answered or refused, and what was raised that is not ours."""
    answered, refused, raw = 0, 0, []
    for _ in range(count):
        language, text = maker.question()
        try:
            ask = lake.sql if language == "sql" else lake.kql
            ask(text, engine=engine, budget={"seconds": 5, "memory": "500MB"}).to_arrow()
            answered += 1
        except tidelake.TidelakeError:
            refused += 1
        except Exception as error:
            raw.append(f"{type(error).__name__}: {str(error)[:200]} of {text}")
    return {"answered": answered, "refused": refused, "raw": raw}


def main(where: str, folder: str, seed: str, count: str, engine: str) -> None:
    if engine == "read":
        Path(folder, "canary.csv").read_text()
        return
    with tidelake.connect(where) as lake:
        print(json.dumps(ask_all(lake, Maker(int(seed), folder), int(count), engine)))


if __name__ == "__main__":
    main(*sys.argv[1:])
