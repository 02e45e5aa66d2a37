"""Print the share of questions that are answered as published, and write the others to a file.

It does not read anything but the questions' files; the lake it asks is empty.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidelake import Lake, connect
from tools.oracles import kql, spark_sql
from tools.oracles.outcomes import File, Outcome, asker, read_entries

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "oracles"
FILES: Mapping[str, File] = {**kql.FILES, **spark_sql.FILES}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.oracles", description=__doc__)
    parser.add_argument("files", nargs="*", help=f"of {', '.join(FILES)}; all without")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the questions")
    parser.add_argument("--engine", choices=["local", "spark"], default="local")
    parser.add_argument("--only", default="", help="a regular expression on an entry's name or query")
    parser.add_argument("--every", type=int, default=1, help="take every n-th entry")
    parser.add_argument("--seconds", type=float, default=20.0, help="the time that a query may take")
    parser.add_argument("--all", action="store_true", help="also what is out of scope")
    parser.add_argument("--out", type=Path, default=Path("build") / "oracles", help="the folder of what differs")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        lake = connect(folder)
        for file in arguments.files or FILES:
            outcomes = _outcomes(file, lake, arguments)
            counts = Counter(outcome.verdict for outcome in outcomes)
            share = counts["same"] / max(len(outcomes), 1)
            others = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common() if verdict != "same")
            print(
                f"{file} on {arguments.engine}: {counts['same']} of {len(outcomes)} ({share:.1%}); {others}", flush=True
            )
            _write(arguments.out / f"{file}.{arguments.engine}.txt", outcomes)


def _outcomes(file: str, lake: Lake, arguments: argparse.Namespace) -> Sequence[Outcome]:
    rules = FILES[file]
    ask = asker(lake, rules.language, arguments.engine, arguments.seconds)
    entries = [
        entry
        for entry in read_entries(arguments.data / f"{file}.jsonl.zst")
        if arguments.all or rules.is_in_scope(entry)
    ]
    only = re.compile(arguments.only)
    chosen = [entry for entry in entries[:: arguments.every] if only.search(f"{entry.get('path')} {entry}")]
    return [rules.judge(entry, ask) for entry in chosen]


def _write(path: Path, outcomes: Sequence[Outcome]) -> None:
    parts = []
    for outcome in outcomes:
        if outcome.verdict != "same":
            parts += [f"##### {outcome.name} [{outcome.verdict}]", outcome.query, "--- expected", outcome.expected]
            parts += ["--- found", outcome.found, ""]
    path.write_text("\n".join(parts))


if __name__ == "__main__":
    main()
