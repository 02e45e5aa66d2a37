"""Read a log table as timeseries-table-core 0.2.2 does, from the rules of its format alone.

Fields that it needs must be there and of its types; fields that it does not know are passed over; only what ``CURRENT``
tells of is read, from the first commit on. It shares no code with ours, so that the two can be compared.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

_PLAIN_TYPES = ("Bool", "Int32", "Int64", "UInt64", "Float32", "Float64", "Binary", "Utf8", "Int96")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.(\d{3}|\d{6}|\d{9}))?Z")


@dataclass(frozen=True, slots=True)
class Original:
    """What the original makes of a table."""

    version: int
    meta: dict[str, Any]
    segments: dict[str, dict[str, Any]]
    coverage: dict[str, Any] | None


def read_original(root: Path) -> Original:
    """Replay a table's log up to ``CURRENT``."""
    log = root / "_timeseries_log"
    version = int((log / "CURRENT").read_text().strip())
    meta: dict[str, Any] | None = None
    coverage: dict[str, Any] | None = None
    segments: dict[str, dict[str, Any]] = {}
    for number in range(1, version + 1):
        commit = json.loads((log / f"{number:010d}.json").read_text())
        assert commit["version"] == number
        assert commit["base_version"] == number - 1
        _check_time(commit["timestamp"])
        for action in commit["actions"]:
            [(name, body)] = action.items()
            match name:
                case "UpdateTableMeta":
                    meta = _meta(body)
                case "AddSegment":
                    segments[body["segment_id"]] = _segment(body)
                case "RemoveSegment":
                    segments.pop(body["segment_id"], None)
                case "UpdateTableCoverage":
                    coverage = {"bucket_spec": _bucket(body["bucket_spec"]), "coverage_path": body["coverage_path"]}
                case _:
                    raise AssertionError(f"unknown variant {name}")
    assert meta is not None
    return Original(version, meta, segments, coverage)


def _meta(body: dict[str, Any]) -> dict[str, Any]:
    assert body["format_version"] == 1
    _check_time(body["created_at"])
    kind = body["kind"]
    if kind != "Generic":
        index = kind["TimeSeries"]
        _bucket(index["bucket"])
        assert isinstance(index["timestamp_column"], str)
        assert all(isinstance(name, str) for name in index["entity_columns"])
        assert isinstance(index.get("timezone", ""), str)
    for column in (body["logical_schema"] or {"columns": []})["columns"]:
        assert column.keys() == {"name", "data_type", "nullable"}
        _check_type(column["data_type"])
    identity = body.get("entity_identity") or {}
    assert all(isinstance(value, str) for value in identity.values())
    return {name: held for name, held in body.items() if name != "tide"}


def _segment(body: dict[str, Any]) -> dict[str, Any]:
    assert body["format"] == "parquet", f"unknown variant {body['format']}"
    for name in ("ts_min", "ts_max"):
        _check_time(body[name])
    assert isinstance(body["row_count"], int)
    assert isinstance(body.get("file_size", 0), int)
    return {name: held for name, held in body.items() if name != "tide"}


def _bucket(bucket: dict[str, int]) -> dict[str, int]:
    [(unit, count)] = bucket.items()
    assert unit in ("Seconds", "Minutes", "Hours", "Days")
    assert 0 < count < 2**32
    return bucket


def _check_type(data_type: Any) -> None:
    if isinstance(data_type, str):
        assert data_type in _PLAIN_TYPES
        return
    [(name, body)] = data_type.items()
    match name:
        case "Timestamp":
            assert body["unit"] in ("Millis", "Micros", "Nanos")
            assert body["timezone"] is None or isinstance(body["timezone"], str)
        case "List":
            _check_type(body["elements"]["data_type"])
        case _:
            raise AssertionError(f"not one that we write: {name}")


def _check_time(text: str) -> None:
    assert _TIME.fullmatch(text)
    datetime.fromisoformat(text[:19])
