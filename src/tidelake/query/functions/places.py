"""Hold the portable functions of places on earth.

Each is a function of one row's texts; options travel as one JSON array. Distances are along a great circle of a sphere,
which is within half a percent of the earth's shape. It does not know engines.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from tidelake.query.functions.declaration import Function, declare
from tidelake.query.functions.python import dumped

RADIUS_M = 6_371_010.0  # the mean radius of the earth
_GEOHASH = "0123456789bcdefghjkmnpqrstuvwxyz"


def distance(longitude: str, options: str) -> float:
    """Return the metres between two points, of longitude and latitude each."""
    latitude, far_longitude, far_latitude = json.loads(options)
    return _distance(float(longitude), latitude, far_longitude, far_latitude)


def _distance(one_x: float, one_y: float, other_x: float, other_y: float) -> float:
    _check(one_x, one_y)
    _check(other_x, other_y)
    low, high = math.radians(one_y), math.radians(other_y)
    across, up = math.radians(other_x - one_x), high - low
    half = math.sin(up / 2) ** 2 + math.cos(low) * math.cos(high) * math.sin(across / 2) ** 2
    return 2 * RADIUS_M * math.asin(min(1.0, math.sqrt(half)))


def _check(longitude: float, latitude: float) -> None:
    if not (-180 <= longitude <= 180 and -90 <= latitude <= 90):
        raise ValueError("not a place on earth")


def in_circle(longitude: str, options: str) -> bool:
    latitude, center_x, center_y, radius = json.loads(options)
    return _distance(float(longitude), latitude, center_x, center_y) <= float(radius)


def in_polygon(longitude: str, options: str) -> bool:
    """Return whether a point lies within a GeoJSON polygon or any of several, edges being straight on the map."""
    latitude, shape = json.loads(options)
    shape = json.loads(shape) if isinstance(shape, str) else shape
    many = shape["coordinates"] if shape["type"] == "MultiPolygon" else [shape["coordinates"]]
    point = (float(longitude), float(latitude))
    return any(_within(point, rings[0]) and not any(_within(point, hole) for hole in rings[1:]) for rings in many)


def _within(point: tuple[float, float], ring: Sequence[Sequence[float]]) -> bool:
    x, y = point
    inside = False
    for at, (one_x, one_y) in enumerate(ring):
        other_x, other_y = ring[at - 1]
        if (one_y > y) != (other_y > y) and x < (other_x - one_x) * (y - one_y) / (other_y - one_y) + one_x:
            inside = not inside
    return inside


def geohash(longitude: str, options: str) -> str:
    latitude, length = json.loads(options)
    _check(float(longitude), latitude)
    if not 1 <= int(length) <= 18:
        raise ValueError("a geohash has 1 to 18 letters")
    bounds, place = [[-180.0, 180.0], [-90.0, 90.0]], (float(longitude), float(latitude))
    bits = 0
    for at in range(5 * int(length)):
        side = bounds[at % 2]
        middle = (side[0] + side[1]) / 2
        above = place[at % 2] >= middle
        side[0 if above else 1] = middle
        bits = bits << 1 | above
    return "".join(_GEOHASH[bits >> shift & 31] for shift in range(5 * int(length) - 5, -1, -5))


def center_of(code: str) -> str:
    bounds = [[-180.0, 180.0], [-90.0, 90.0]]
    for at, bit in enumerate(f"{_GEOHASH.index(letter):05b}"[place] for letter in code for place in range(5)):
        side = bounds[at % 2]
        side[0 if bit == "1" else 1] = (side[0] + side[1]) / 2
    return dumped({"type": "Point", "coordinates": [(low + high) / 2 for low, high in bounds]})


FUNCTIONS: tuple[Function, ...] = (
    declare("geo_distance", returns="real", python=distance, arity=2),
    declare("geo_in_circle", returns="bool", python=in_circle, arity=2),
    declare("geo_in_polygon", returns="bool", python=in_polygon, arity=2),
    declare("geohash", returns="text", python=geohash, arity=2),
    declare("geohash_center", returns="dynamic", python=center_of, arity=1),
)
