"""Hold the portable functions that convert between units, and those of distributions.

Each is a function of one row's texts; options travel as one JSON array. It does not know engines.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping

from tidelake.query.functions.declaration import Function, declare

_FOOT, _INCH, _MILE, _SURVEY_FOOT = 0.3048, 0.0254, 1609.344, 1200 / 3937
_GALLON, _IMPERIAL_GALLON, _POUND = 3.785411784e-3, 4.54609e-3, 0.45359237
_BTU, _CALORIE, _ELECTRON_VOLT, _GRAVITY = 1055.05585262, 4.184, 1.602176565e-19, 9.80665
_LIGHT_YEAR, _PARSEC = 9.46073047258e15, 3.08567758128e16

# How many of the first unit one of each is.
_UNITS: Mapping[str, Mapping[str, float]] = {
    "angle": {
        "Radian": 1.0, "Deciradian": 0.1, "Centiradian": 1e-2, "Milliradian": 1e-3, "Microradian": 1e-6,
        "Nanoradian": 1e-9, "Degree": math.pi / 180, "Millidegree": math.pi / 180e3, "Microdegree": math.pi / 180e6,
        "Nanodegree": math.pi / 180e9, "Gradian": math.pi / 200, "Revolution": 2 * math.pi,
        "Arcminute": math.pi / 10800, "Arcsecond": math.pi / 648000, "NatoMil": math.pi / 3200, "Tilt": math.nan,
    },
    "energy": {
        "Joule": 1.0, "Millijoule": 1e-3, "Kilojoule": 1e3, "Megajoule": 1e6, "Gigajoule": 1e9, "Erg": 1e-7,
        "Calorie": _CALORIE, "Kilocalorie": 1e3 * _CALORIE, "Megacalorie": 1e6 * _CALORIE, "WattHour": 3600.0,
        "KilowattHour": 3.6e6, "MegawattHour": 3.6e9, "GigawattHour": 3.6e12, "TerawattHour": 3.6e15,
        "WattDay": 86400.0, "KilowattDay": 8.64e7, "MegawattDay": 8.64e10, "GigawattDay": 8.64e13,
        "TerawattDay": 8.64e16, "BritishThermalUnit": _BTU, "KilobritishThermalUnit": 1e3 * _BTU,
        "MegabritishThermalUnit": 1e6 * _BTU, "GigabritishThermalUnit": 1e9 * _BTU, "ElectronVolt": _ELECTRON_VOLT,
        "KiloelectronVolt": 1e3 * _ELECTRON_VOLT, "MegaelectronVolt": 1e6 * _ELECTRON_VOLT,
        "GigaelectronVolt": 1e9 * _ELECTRON_VOLT, "TeraelectronVolt": 1e12 * _ELECTRON_VOLT,
        "FootPound": 1.3558179483314004, "HorsepowerHour": 2684519.537696172792, "ThermEc": 1.05505585262e8,
        "ThermUs": 1.054804e8, "ThermImperial": 1.05505585257348e8, "DecathermEc": 1.05505585262e9,
        "DecathermUs": 1.054804e9, "DecathermImperial": 1.05505585257348e9,
    },
    "force": {
        "Newton": 1.0, "Micronewton": 1e-6, "Millinewton": 1e-3, "Decanewton": 10.0, "Kilonewton": 1e3,
        "Meganewton": 1e6, "Dyn": 1e-5, "KilogramForce": _GRAVITY, "KiloPond": _GRAVITY, "TonneForce": 1e3 * _GRAVITY,
        "PoundForce": 4.4482216152605, "KilopoundForce": 4448.2216152605, "OunceForce": 0.27801385095378125,
        "ShortTonForce": 8896.443230521, "Poundal": 0.138254954376,
    },
    "length": {
        "Meter": 1.0, "Nanometer": 1e-9, "Micrometer": 1e-6, "Millimeter": 1e-3, "Centimeter": 1e-2, "Decimeter": 0.1,
        "Decameter": 10.0, "Hectometer": 100.0, "Kilometer": 1e3, "Angstrom": 1e-10, "Inch": _INCH,
        "Microinch": 1e-6 * _INCH, "Mil": 1e-3 * _INCH, "Foot": _FOOT, "Yard": 0.9144, "Mile": _MILE,
        "NauticalMile": 1852.0, "DataMile": 1828.8, "Chain": 20.1168, "Fathom": 1.8288, "Hand": 0.1016,
        "Shackle": 27.432, "Twip": _INCH / 1440, "DtpPoint": _INCH / 72, "DtpPica": _INCH / 6,
        "PrinterPoint": _INCH / 72.27, "PrinterPica": _INCH * 12 / 72.27, "UsSurveyFoot": _SURVEY_FOOT,
        "AstronomicalUnit": 1.495978707e11, "SolarRadius": 6.95510e8, "LightYear": _LIGHT_YEAR,
        "KilolightYear": 1e3 * _LIGHT_YEAR, "MegalightYear": 1e6 * _LIGHT_YEAR, "Parsec": _PARSEC,
        "Kiloparsec": 1e3 * _PARSEC, "Megaparsec": 1e6 * _PARSEC,
    },
    "mass": {
        "Kilogram": 1.0, "Nanogram": 1e-12, "Microgram": 1e-9, "Milligram": 1e-6, "Centigram": 1e-5, "Decigram": 1e-4,
        "Gram": 1e-3, "Decagram": 1e-2, "Hectogram": 0.1, "Tonne": 1e3, "Kilotonne": 1e6, "Megatonne": 1e9,
        "Grain": 6.479891e-5, "Ounce": _POUND / 16, "Pound": _POUND, "Kilopound": 1e3 * _POUND,
        "Megapound": 1e6 * _POUND, "Stone": 14 * _POUND, "ShortHundredweight": 100 * _POUND,
        "LongHundredweight": 112 * _POUND, "ShortTon": 2000 * _POUND, "LongTon": 2240 * _POUND,
        "Slug": 14.593902937206, "EarthMass": 5.9722e24, "SolarMass": 1.98847e30,
    },
    "speed": {
        f"{unit}Per{time}": size / seconds
        for unit, size in (
            ("Meter", 1.0), ("Nanometer", 1e-9), ("Micrometer", 1e-6), ("Millimeter", 1e-3), ("Centimeter", 1e-2),
            ("Decimeter", 0.1), ("Kilometer", 1e3), ("Inch", _INCH), ("Foot", _FOOT), ("Yard", 0.9144),
            ("UsSurveyFoot", _SURVEY_FOOT), ("Mile", _MILE),
        )
        for time, seconds in (("Second", 1), ("Minute", 60), ("Hour", 3600))
    } | {"Knot": 1852 / 3600},
    "volume": {
        "CubicMeter": 1.0, "CubicMicrometer": 1e-18, "CubicMillimeter": 1e-9, "CubicCentimeter": 1e-6,
        "CubicDecimeter": 1e-3, "CubicHectometer": 1e6, "CubicKilometer": 1e9, "HectocubicMeter": 100.0,
        "KilocubicMeter": 1e3, "CubicInch": _INCH**3, "CubicFoot": _FOOT**3, "HectocubicFoot": 100 * _FOOT**3,
        "KilocubicFoot": 1e3 * _FOOT**3, "MegacubicFoot": 1e6 * _FOOT**3, "CubicYard": 0.9144**3, "CubicMile": _MILE**3,
        "AcreFoot": 1233.48183754752, "BoardFoot": _FOOT**3 / 12, "Microliter": 1e-9, "Milliliter": 1e-6,
        "Centiliter": 1e-5, "Deciliter": 1e-4, "Liter": 1e-3, "Decaliter": 1e-2, "Hectoliter": 0.1, "Kiloliter": 1.0,
        "Megaliter": 1e3, "UsGallon": _GALLON, "DeciusGallon": 0.1 * _GALLON, "DecausGallon": 10 * _GALLON,
        "HectousGallon": 100 * _GALLON, "KilousGallon": 1e3 * _GALLON, "MegausGallon": 1e6 * _GALLON,
        "UsQuart": _GALLON / 4, "UsPint": _GALLON / 8, "UsCustomaryCup": _GALLON / 16, "UsLegalCup": 2.4e-4,
        "UsOunce": _GALLON / 128, "UsTablespoon": _GALLON / 256, "UsTeaspoon": _GALLON / 768,
        "UsBeerBarrel": 31 * _GALLON, "OilBarrel": 42 * _GALLON, "ImperialGallon": _IMPERIAL_GALLON,
        "KiloimperialGallon": 1e3 * _IMPERIAL_GALLON, "MegaimperialGallon": 1e6 * _IMPERIAL_GALLON,
        "ImperialPint": _IMPERIAL_GALLON / 8, "ImperialOunce": _IMPERIAL_GALLON / 160,
        "ImperialBeerBarrel": 36 * _IMPERIAL_GALLON, "MetricCup": 2.5e-4, "MetricTeaspoon": 5e-6, "AuTablespoon": 2e-5,
        "UkTablespoon": 1.5e-5,
    },
}  # fmt: skip
_ZEROS = {"Kelvin": (1.0, 0.0), "MillidegreeCelsius": (1e-3, 273.15), "DegreeCelsius": (1.0, 273.15),
          "DegreeDelisle": (-2 / 3, 373.15), "DegreeFahrenheit": (5 / 9, 459.67 * 5 / 9),
          "DegreeNewton": (100 / 33, 273.15), "DegreeRankine": (5 / 9, 0.0), "DegreeReaumur": (1.25, 273.15),
          "DegreeRoemer": (40 / 21, 273.15 - 7.5 * 40 / 21), "SolarTemperature": (5778.0, 0.0)}  # fmt: skip


def _convert(kind: str) -> Callable[[str, str], float]:
    def apply(value: str, options: str) -> float:
        held, wanted = json.loads(options)
        if kind == "temperature":
            (slope, zero), (other_slope, other_zero) = _ZEROS[held], _ZEROS[wanted]
            return (float(value) * slope + zero - other_zero) / other_slope
        if kind == "angle" and "Tilt" in (held, wanted):  # the sine of an angle, which is no multiple of it
            angle = math.asin(float(value)) if held == "Tilt" else float(value) * _UNITS[kind][held]
            return math.sin(angle) if wanted == "Tilt" else angle / _UNITS[kind][wanted]
        return float(value) * _UNITS[kind][held] / _UNITS[kind][wanted]

    return apply


def beta_cdf(x: str, alpha: str, beta: str) -> float:
    """Return the share of a beta distribution that lies below a place."""
    place, one, other = float(x), float(alpha), float(beta)
    return _beta(place, one, other) if 0 <= place <= 1 and one > 0 and other > 0 else math.nan


def beta_pdf(x: str, alpha: str, beta: str) -> float:
    place, one, other = float(x), float(alpha), float(beta)
    if not (0 <= place <= 1 and one > 0 and other > 0):
        return math.nan
    if place in (0, 1):
        edge = one if place == 0 else other
        return 0.0 if edge > 1 else math.inf if edge < 1 else other if place == 0 else one
    scale = math.lgamma(one + other) - math.lgamma(one) - math.lgamma(other)
    return math.exp(scale + (one - 1) * math.log(place) + (other - 1) * math.log1p(-place))


def beta_inv(share: str, alpha: str, beta: str) -> float | None:
    """Find the place below which a share of a beta distribution lies, by halving."""
    wanted, one, other = float(share), float(alpha), float(beta)
    if one <= 0 or other <= 0:
        return math.nan
    if not 0 <= wanted <= 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _beta(middle, one, other) < wanted else (low, middle)
    return (low + high) / 2


def _beta(x: float, alpha: float, beta: float) -> float:
    """Compute the regularised incomplete beta function by its continued fraction, where that converges fast."""
    if x in (0.0, 1.0):
        return x
    if x > (alpha + 1) / (alpha + beta + 2):
        return 1 - _beta(1 - x, beta, alpha)
    front = math.lgamma(alpha + beta) - math.lgamma(alpha) - math.lgamma(beta)
    front = math.exp(front + alpha * math.log(x) + beta * math.log1p(-x)) / alpha
    tiny, numerator, denominator, found = 1e-300, 1.0, 0.0, 1.0
    for step in range(1, 500):
        half = step // 2
        if step == 1:
            term = 1.0
        elif step % 2:
            term = half * (beta - half) * x / ((alpha + 2 * half - 1) * (alpha + 2 * half))
        else:
            term = -(alpha + half - 1) * (alpha + beta + half - 1) * x
            term /= (alpha + 2 * half - 2) * (alpha + 2 * half - 1)
        denominator = 1 / ((1 + term * denominator) or tiny)
        numerator = (1 + term / numerator) or tiny
        found *= numerator * denominator
        if abs(numerator * denominator - 1) < 1e-16:
            break
    return front * (found - 1)


FUNCTIONS: tuple[Function, ...] = (
    *(declare(f"convert_{kind}", returns="real", python=_convert(kind), arity=2) for kind in (*_UNITS, "temperature")),
    declare("beta_cdf", returns="real", python=beta_cdf, arity=3),
    declare("beta_pdf", returns="real", python=beta_pdf, arity=3),
    declare("beta_inv", returns="real", python=beta_inv, arity=3),
)
