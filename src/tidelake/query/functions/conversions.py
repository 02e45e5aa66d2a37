"""Hold the portable functions that turn bytes, arrays and bags into one another.

Each is a function of one row's texts; options travel as one JSON array. It does not know engines.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import uuid
import zlib
from collections.abc import Callable
from typing import Any

from tidelake.query.functions.series import dumped, number
from tidelake.query.kql.literals import format_span

MAX_UNPACKED = 64 << 20  # bytes that one compressed text may become
MAX_REPEAT = 1_000_000


def decoded(text: str) -> bytes:
    """Read base64, which is padded and has no other signs."""
    return base64.b64decode(text, validate=True)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unpacked(text: str, wbits: int) -> str:
    opened = zlib.decompressobj(wbits)
    data = opened.decompress(decoded(text), MAX_UNPACKED)
    if opened.unconsumed_tail:
        raise ValueError("too large")
    return data.decode("utf-8")


def array_shift(array: str, options: str, direction: int) -> str:
    items, (places, fill) = json.loads(array), json.loads(options)
    shift = direction * int(places)
    kept = items[shift:] if shift >= 0 else items[:shift]
    padding = [fill] * min(abs(shift), len(items))
    return dumped(kept + padding if shift >= 0 else padding + kept)


def array_iff(conditions: str, yes: str, no: str) -> str:
    """Choose item by item; a side that is no array stands for each item."""
    tests, sides = json.loads(conditions), [json.loads(side) for side in (yes, no)]

    def item(side: Any, at: int) -> Any:
        return (side[at] if at < len(side) else None) if isinstance(side, list) else side

    def chosen(test: Any, at: int) -> Any:
        return item(sides[not test], at) if isinstance(test, bool | int | float) else None

    return dumped([chosen(test, at) for at, test in enumerate(tests)])


def build_schema(values: str) -> str:
    """Describe the types that values have: one, or several as a list; bags by key, arrays under ``indexer``."""
    kinds: list[Any] = []
    bags: dict[str, list[Any]] = {}
    items: list[Any] = []
    for value in json.loads(values):
        match value:
            case dict():
                for key, inner in value.items():
                    bags.setdefault(key, []).append(inner)
                kinds.append("bag")
            case list():
                items += value
                kinds.append("array")
            case bool() | int() | float() | str():
                name = {bool: "bool", int: "long", float: "double", str: "string"}[type(value)]
                kinds.append(name)
    found: list[Any] = []
    for kind in dict.fromkeys(kinds):
        if kind == "bag":
            found.append({key: json.loads(build_schema(json.dumps(inner))) for key, inner in bags.items()})
        elif kind == "array":
            found.append({"`indexer`": json.loads(build_schema(json.dumps(items)))})
        else:
            found.append(kind)
    return dumped(found[0] if len(found) == 1 else found or None)


def range_timespan(first: str, last: str, step: str) -> str:
    low, high, by = int(first), int(last), int(step)
    count = (high - low) // by + 1
    if count > MAX_REPEAT:
        raise ValueError("too many")
    return dumped([format_span(low + at * by) for at in range(max(count, 0))])


def array_split(array: str, options: str) -> str:
    """Cut an array at some places; one from the end is counted back."""
    items, (places,) = json.loads(array), json.loads(options)
    cuts = [int(place) for place in (places if isinstance(places, list) else [places])]
    cuts = [max(0, cut + len(items)) if cut < 0 else min(cut, len(items)) for cut in cuts]
    bounds = [0, *cuts, len(items)]
    return dumped([items[bounds[at] : bounds[at + 1]] for at in range(len(bounds) - 1)])


def arrays_sorted(arrays: str, options: str) -> str:
    """Sort the first of some arrays, and the others along with it; one of another length is null.

    Numbers come before texts, and those before the rest; nulls stand at an end. Of one array there is one.
    """
    held, (descending, nulls_last) = json.loads(arrays), json.loads(options)
    first = held[0]
    known = [at for at, item in enumerate(first) if item is not None]
    nulls = [at for at, item in enumerate(first) if item is None]
    for kind in (2, 1, 0):  # from the last kind on, each is put before those after it
        of_kind = sorted((at for at in known if _rank(first[at])[0] == kind), key=lambda at: _rank(first[at])[1])
        known = (of_kind[::-1] if descending else of_kind) + [at for at in known if _rank(first[at])[0] != kind]
    order = known + nulls if nulls_last else nulls + known
    found = [[each[at] for at in order] if each and len(each) == len(first) else None for each in held]
    return dumped(found if len(found) > 1 else found[0] if first else [])


def _rank(item: Any) -> tuple[int, Any]:
    if isinstance(item, int | float) and not isinstance(item, bool):
        return 0, item
    return (1, item) if isinstance(item, str) else (2, dumped(item))


def array_index(array: str, value: str, options: str) -> int:
    """Find a value from a place on, within some length, the so manieth time; a place below zero counts from the end."""
    given: list[int] = json.loads(options)
    start, length, occurrence = (*given, *(0, -1, 1)[len(given) :])
    items = json.loads(array)
    begin = max(0, start + len(items)) if start < 0 else start
    end = len(items) if length < 0 else min(len(items), begin + length)
    places = [
        at for at in range(begin, end) if (items[at] if isinstance(items[at], str) else dumped(items[at])) == value
    ]
    return places[occurrence - 1] if 0 < occurrence <= len(places) else -1


def percentile_weighted(pairs: str, share: str) -> float | None:
    """Give the least value that, with all below it, has a share of the weight."""
    held = sorted((value, weight) for value, weight in json.loads(pairs) if value is not None and weight and weight > 0)
    wanted = sum(weight for _, weight in held) * float(share) / 100
    total = 0.0
    for value, weight in held:
        total += weight
        if total >= wanted:
            return float(value)
    return None


def percentile_of(values: str, share: str) -> float | None:
    """Give the least of some values that a share of them is not above."""
    held = sorted(value for value in json.loads(values) if isinstance(value, int | float))
    place = math.ceil(len(held) * min(max(float(share), 0.0), 100.0) / 100)
    return float(held[max(place - 1, 0)]) if held else None


def rank_of(values: str, value: str) -> int:
    return sum(held <= float(value) for held in json.loads(values))


def bag_set_key(bag: str, options: str) -> str:
    found, (key, value) = json.loads(bag), json.loads(options)
    path = str(key)[2:].split(".") if str(key).startswith("$.") else [str(key)]
    at = found
    for step in path[:-1]:
        at = at.setdefault(step, {})
    at[path[-1]] = value
    return dumped(found)


def repeat(value: str, options: str) -> str:
    (count,) = json.loads(options)
    if not 0 <= int(count) <= MAX_REPEAT:
        raise ValueError("too many")
    return dumped([json.loads(value)] * int(count))


def treepath(value: str) -> str:
    """List the paths of everything within a value, as KQL writes them."""
    found: list[str] = []

    def walk(item: Any, path: str) -> None:
        if isinstance(item, dict):
            for key, inner in item.items():
                found.append(f"{path}['{key}']")
                walk(inner, f"{path}['{key}']")
        elif isinstance(item, list) and item:
            found.append(f"{path}[0]")
            walk(item[0], f"{path}[0]")

    walk(json.loads(value), "")
    return dumped(found)


# name, function, how many texts it takes, what it gives
CODEC: tuple[tuple[str, Callable[..., Any], int, str], ...] = (
    ("tide_base64_from_array", lambda array: _text(bytes(json.loads(array))), 1, "text"),
    ("tide_base64_from_guid", lambda text: _text(uuid.UUID(text).bytes_le), 1, "text"),
    ("tide_base64_to_guid", lambda text: str(uuid.UUID(bytes_le=decoded(text))), 1, "text"),
    ("tide_zlib_pack", lambda text: _text(zlib.compress(text.encode())), 1, "text"),
    ("tide_zlib_unpack", lambda text: _unpacked(text, zlib.MAX_WBITS), 1, "text"),
    ("tide_gzip_pack", lambda text: _text(gzip.compress(text.encode(), mtime=0)), 1, "text"),
    ("tide_gzip_unpack", lambda text: _unpacked(text, 16 + zlib.MAX_WBITS), 1, "text"),
    ("tide_array_shift", lambda array, options: array_shift(array, options, 1), 2, "json"),
    ("tide_array_shift_right", lambda array, options: array_shift(array, options, -1), 2, "json"),
    ("tide_array_split", array_split, 2, "json"),
    ("tide_arrays_sorted", arrays_sorted, 2, "json"),
    ("tide_percentile_weighted", percentile_weighted, 2, "real"),
    ("tide_array_index_from", array_index, 3, "long"),
    ("tide_array_iff", array_iff, 3, "json"),
    ("tide_range_timespan", range_timespan, 3, "json"),
    ("tide_bag_set_key", bag_set_key, 2, "json"),
    ("tide_percentile_of", percentile_of, 2, "real"),
    (
        "tide_percentiles_of",
        lambda a, o: dumped([number(percentile_of(a, share)) for share in json.loads(o)[0]]),
        2,
        "json",
    ),
    ("tide_rank_of", rank_of, 2, "long"),
    ("tide_percentrank_of", lambda a, v: 100.0 * rank_of(a, v) / len(json.loads(a)), 2, "real"),
    ("tide_build_schema", build_schema, 1, "json"),
    ("tide_repeat", repeat, 2, "json"),
    ("tide_treepath", treepath, 1, "json"),
)
