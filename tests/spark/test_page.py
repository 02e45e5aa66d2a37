"""Execute what docs/spark.md says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_examples_of_the_page_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text().replace('"lake", "lake"', f'"lake", "{tmp_path}/lake"')  # planners keep Spark's own folder
    text = re.sub(r'"((?:[a-z]+-)?checkpoint)"', rf'"{tmp_path}/\1"', text)
    namespace: dict[str, Any] = {}
    try:
        catalog = text.index("## A catalog\n")
        for block in re.finditer(r"^```(python|sql)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            if block[1] == "python":
                exec(compile(block[2], str(PAGE), "exec"), namespace)
            elif (
                catalog < block.start() < text.index("\n## ", catalog)
            ):  # other statements name tables that are not there
                ran = [spark.sql(each).collect() for each in block[2].split(";\n") if each.strip()]
                assert len(ran) > 10
    finally:
        for query in spark.streams.active:
            query.stop()
        if "lake" in namespace:
            namespace["lake"].close()
    assert "scan obs.logs at snapshot" in capsys.readouterr().out
