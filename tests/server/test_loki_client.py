"""Log by Python's own logging through a client of Loki's that is in use."""

from __future__ import annotations

import logging
import secrets

import logging_loki

import tidelake
from tests.support.serving import Served


def test_a_handler_of_pythons_logging_pushes_its_lines(served: Served, reader: tidelake.Lake) -> None:
    job = secrets.token_hex(4)
    handler = logging_loki.LokiHandler(
        url=f"{served.url}/loki/api/v1/push", tags={"job": job}, auth=("anybody", "nothing"), version="1"
    )
    failed: list[logging.LogRecord] = []
    handler.handleError = failed.append  # what was not acknowledged with 204
    logger = logging.getLogger(f"tests.{job}")
    logger.propagate = False
    logger.addHandler(handler)
    for n in range(5):
        logger.error("line %d", n, extra={"tags": {"part": str(n % 2)}})
    assert failed == []
    asked = (
        f"select message, labels.part p, labels.severity s from loki_logs where labels.job = '{job}' order by message"
    )
    rows = reader.sql(asked).to_arrow().to_pylist()
    assert [(row["message"], str(row["p"]).strip('"'), str(row["s"]).strip('"')) for row in rows] == [
        (f"line {n}", str(n % 2), "error") for n in range(5)
    ]
