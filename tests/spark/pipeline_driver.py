"""Be the driver of the documented pipeline, which a test kills: its code is that of docs/spark.md."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import tidelake
import tidelake.spark

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def documented() -> dict[str, Any]:
    """Return what the page's code of the pipeline defines."""
    section = PAGE.read_text().partition("### Bronze, silver, gold\n")[2]
    block = re.search(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert block is not None
    found: dict[str, Any] = {"tidelake": tidelake}
    exec(compile(block[1], str(PAGE), "exec"), found)
    return found


def main() -> None:
    folder = sys.argv[1]
    spark = tidelake.spark.session(
        "local[2]",
        lake=f"{folder}/lake",
        spark__driver__memory="512m",
        spark__driver__host="127.0.0.1",
        spark__local__dir=f"{folder}/local",
        spark__sql__warehouse__dir=f"{folder}/warehouse",
        spark__sql__shuffle__partitions="2",
        spark__sql__session__timeZone="UTC",
    )
    spark.sparkContext.setLogLevel("OFF")
    page = documented()
    page["make"](spark)
    queries = list(page["pipeline"](spark, f"{folder}/raw", f"{folder}/checkpoints", processingTime="0 seconds"))
    print("ready", flush=True)
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    main()
