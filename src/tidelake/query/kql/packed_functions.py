"""List the scalar functions whose options travel as one array, and those that give several columns.

A line of ``_PACKED`` is a name, the portable function behind it, what it gives, the type of its first argument, and its
options as ``type=default``; an option without a default must be given. ``PARTS`` says which columns come out of a
function that gives several: its value is an array of them. It does not know columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sqlglot import exp

from tidelake.query.kql.arguments import Arguments, Rule, ScalarFunction
from tidelake.query.kql.conversions import convert
from tidelake.query.kql.values import Value, call, json_of, literal, text_literal

_PACKED = """
series_decompose_anomalies: tide_anomalies dynamic dynamic real=1.5 long=-1 text="avg" long=0 text="ctukey" real=0.6
series_decompose: tide_series_decompose dynamic dynamic long=-1 text="avg" long=0 real=0.6
series_decompose_forecast: tide_series_forecast dynamic dynamic long long=-1 text="linefit" real=0.6
series_outliers: tide_series_outliers dynamic dynamic text="ctukey" real=null real=10 real=90 long=0
series_periods_detect: tide_series_periods dynamic dynamic real real long
series_seasonal: tide_series_seasonal dynamic dynamic long=-1 long=0
series_fir: tide_series_fir dynamic dynamic dynamic bool=true bool=false
series_iir: tide_series_iir dynamic dynamic dynamic dynamic
array_shift_left: tide_array_shift dynamic dynamic long any=null
array_shift_right: tide_array_shift_right dynamic dynamic long any=null
array_split: tide_array_split dynamic dynamic any
bag_set_key: tide_bag_set_key dynamic dynamic text any
percentiles_array_tdigest: tide_percentiles_of dynamic dynamic dynamic
repeat: tide_repeat dynamic any long
geo_distance_2points: tide_geo_distance real real real real real
geo_point_in_circle: tide_geo_in_circle bool real real real real real
geo_point_in_polygon: tide_geo_in_polygon bool real real dynamic
geo_point_to_geohash: tide_geohash text real real long=5
convert_angle: tide_convert_angle real real text text
convert_energy: tide_convert_energy real real text text
convert_force: tide_convert_force real real text text
convert_length: tide_convert_length real real text text
convert_mass: tide_convert_mass real real text text
convert_speed: tide_convert_speed real real text text
convert_temperature: tide_convert_temperature real real text text
convert_volume: tide_convert_volume real real text text
"""

_STATS = tuple((name, "long" if name.endswith("_idx") else "real") for name in (
    "min", "min_idx", "max", "max_idx", "avg", "stdev", "variance"))  # fmt: skip
_LINE = (*((name, "real") for name in ("rsquare", "slope", "variance", "rvariance", "interception")),
         ("line_fit", "dynamic"))  # fmt: skip
PARTS: Mapping[str, Sequence[tuple[str, str]]] = {
    "series_decompose_anomalies": (("ad_flag", "dynamic"), ("ad_score", "dynamic"), ("baseline", "dynamic")),
    "series_decompose": tuple((name, "dynamic") for name in ("baseline", "seasonal", "trend", "residual")),
    "series_periods_detect": (("periods", "dynamic"), ("scores", "dynamic")),
    "series_stats": _STATS,
    "series_fit_line": _LINE,
}


def parts_of(value: Value, name: str) -> list[tuple[str, Value]]:
    """Return the columns of a function that gives several, by the ends of their names."""
    found = []
    for at, (part, kind) in enumerate(PARTS[name]):
        item = Value(call("tide_at", value.sql, exp.Literal.number(at)), "dynamic")
        found.append((part, convert(item, kind)))
    return found


def _packed(target: str, result: str, first: str, options: Sequence[tuple[str, object]]) -> Rule:
    def rule(args: Arguments) -> Value:
        subject = args.as_type(0, first)
        if first == "any":  # as JSON, for a text alone would look like a number or an array
            subject = Value(call("tide_to_json", convert(subject, "dynamic").sql), "string")
        given: list[Value] = []
        for at, (kind, default) in enumerate(options, start=1):
            given.append(args.as_type(at, kind) if at < len(args) else literal(default, "dynamic"))
        if all(value.is_constant for value in given):
            packed: exp.Expr = text_literal(json.dumps([json_of(value.constant) for value in given]))
        else:
            packed = call("tide_to_json", call("tide_pack_array", *(convert(value, "dynamic").sql for value in given)))
        return Value(call(target, subject.sql, packed), "string" if result == "text" else result)

    return rule


def _read() -> dict[str, ScalarFunction]:
    found: dict[str, ScalarFunction] = {}
    for line in _PACKED.strip().splitlines():
        name, rest = line.split(": ", 1)
        target, result, first, *words = rest.split()
        options = [
            (kind, json.loads(default or "null")) for kind, _, default in (word.partition("=") for word in words)
        ]
        least = 1 + sum("=" not in word for word in words)
        rule = _packed(target, result, first, options)
        found[name] = ScalarFunction(name, least, 1 + len(words), rule, "string" if result == "text" else result)
    return found


PACKED: Mapping[str, ScalarFunction] = _read()
