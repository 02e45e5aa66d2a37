"""Hold the portable functions of places on earth and of units.

Each is a function of one row's texts; options travel as one JSON array. Distances are along a great circle of a sphere,
which is within half a percent of the earth's shape. It does not know engines.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from tidelake.query.functions_series import dumped

RADIUS_M = 6_371_010.0  # the mean radius of the earth
_GEOHASH = "0123456789bcdefghjkmnpqrstuvwxyz"

# How many of the first unit one of each is.
_UNITS: dict[str, dict[str, float]] = {
    "angle": {"Radian": 1.0, "Degree": math.pi / 180, "Gradian": math.pi / 200, "Revolution": 2 * math.pi,
              "Arcminute": math.pi / 10800, "Arcsecond": math.pi / 648000, "Milliradian": 1e-3},
    "energy": {"Joule": 1.0, "Kilojoule": 1e3, "Megajoule": 1e6, "Calorie": 4.184, "Kilocalorie": 4184.0,
               "WattHour": 3600.0, "KilowattHour": 3.6e6, "MegawattHour": 3.6e9, "BritishThermalUnit": 1055.05585262,
               "ElectronVolt": 1.602176634e-19, "FootPound": 1.3558179483314004},
    "force": {"Newton": 1.0, "Kilonewton": 1e3, "Dyn": 1e-5, "KilogramForce": 9.80665, "PoundForce": 4.4482216152605,
              "OunceForce": 0.27801385095378125},
    "length": {"Meter": 1.0, "Kilometer": 1e3, "Centimeter": 1e-2, "Millimeter": 1e-3, "Micrometer": 1e-6,
               "Nanometer": 1e-9, "Decimeter": 0.1, "Inch": 0.0254, "Foot": 0.3048, "Yard": 0.9144, "Mile": 1609.344,
               "NauticalMile": 1852.0},
    "mass": {"Kilogram": 1.0, "Gram": 1e-3, "Milligram": 1e-6, "Microgram": 1e-9, "Tonne": 1e3, "Pound": 0.45359237,
             "Ounce": 0.028349523125, "Stone": 6.35029318, "ShortTon": 907.18474, "LongTon": 1016.0469088},
    "speed": {"MeterPerSecond": 1.0, "KilometerPerHour": 1 / 3.6, "MilePerHour": 0.44704, "Knot": 1852 / 3600,
              "FootPerSecond": 0.3048, "KilometerPerSecond": 1e3, "CentimeterPerSecond": 1e-2},
    "volume": {"CubicMeter": 1.0, "Liter": 1e-3, "Milliliter": 1e-6, "CubicCentimeter": 1e-6,
               "CubicFoot": 0.028316846592, "CubicInch": 1.6387064e-5, "UsGallon": 3.785411784e-3,
               "ImperialGallon": 4.54609e-3, "UsOunce": 2.95735295625e-5, "UsPint": 4.73176473e-4,
               "UsQuart": 9.46352946e-4, "OilBarrel": 0.158987294928},
}  # fmt: skip
_ZEROS = {"Kelvin": (1.0, 0.0), "DegreeCelsius": (1.0, 273.15), "DegreeFahrenheit": (5 / 9, 459.67 * 5 / 9),
          "DegreeRankine": (5 / 9, 0.0)}  # fmt: skip


def distance(longitude: str, options: str) -> float:
    """Give the metres between two points, of longitude and latitude each."""
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
    """Say whether a point lies within a GeoJSON polygon or any of several, edges being straight on the map."""
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


def _convert(kind: str) -> Callable[[str, str], float]:
    def apply(value: str, options: str) -> float:
        held, wanted = json.loads(options)
        if kind == "temperature":
            (slope, zero), (other_slope, other_zero) = _ZEROS[held], _ZEROS[wanted]
            return (float(value) * slope + zero - other_zero) / other_slope
        return float(value) * _UNITS[kind][held] / _UNITS[kind][wanted]

    return apply


# name, function, how many texts it takes, what it gives
PLACES: tuple[tuple[str, Callable[..., Any], int, str], ...] = (
    ("tide_geo_distance", distance, 2, "real"),
    ("tide_geo_in_circle", in_circle, 2, "bool"),
    ("tide_geo_in_polygon", in_polygon, 2, "bool"),
    ("tide_geohash", geohash, 2, "text"),
    ("tide_geohash_center", center_of, 1, "json"),
    *((f"tide_convert_{kind}", _convert(kind), 2, "real") for kind in (*_UNITS, "temperature")),
)
