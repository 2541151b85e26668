"""Numbers, dates, times and amounts in a text, in one form however they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


def _counted(words: str, start: int, step: int = 1) -> dict[str, float]:
    return {word: float(start + step * place) for place, word in enumerate(words.split())}


_CARDINALS: Final = {
    **_counted("zero one two three four five six seven eight nine ten eleven twelve thirteen", 0),
    **_counted("fourteen fifteen sixteen seventeen eighteen nineteen", 14),
    **_counted("twenty thirty forty fifty sixty seventy eighty ninety", 20, 10),
}
_ORDINALS: Final = _counted(
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth", 1
)
_TIMES: Final = {"half": 0.5, "quarter": 0.25, "twice": 2.0, "double": 2.0, "thrice": 3.0, "triple": 3.0}
_SCALES: Final = {
    "dozen": 12.0,
    "hundred": 1e2,
    "thousand": 1e3,
    "million": 1e6,
    "billion": 1e9,
    "trillion": 1e12,
    "lakh": 1e5,
    "lakhs": 1e5,
    "crore": 1e7,
    "crores": 1e7,
}
_SUFFIXES: Final = {"k": 1e3, "m": 1e6, "mn": 1e6, "bn": 1e9, "b": 1e9}
_UNIT_TABLE: Final = (
    # (dimension, factor to the dimension's base, names); bases: second, gram, metre, byte, litre
    ("time", 1.0, "second seconds sec secs s"),
    ("time", 60.0, "minute minutes min mins"),
    ("time", 3600.0, "hour hours hr hrs h"),
    ("time", 86400.0, "day days"),
    ("time", 604800.0, "week weeks wk wks"),
    ("months", 1.0, "month months"),
    ("months", 12.0, "year years yr yrs"),
    ("mass", 0.001, "mg milligram milligrams"),
    ("mass", 1.0, "g gram grams gm"),
    ("mass", 1000.0, "kg kgs kilo kilos kilogram kilograms"),
    ("mass", 453.592, "lb lbs pound pounds"),
    ("mass", 28.3495, "oz ounce ounces"),
    ("length", 0.001, "mm millimeter millimeters millimetre millimetres"),
    ("length", 0.01, "cm centimeter centimeters centimetre centimetres"),
    ("length", 1.0, "meter meters metre metres"),
    ("length", 1000.0, "km kms kilometer kilometers kilometre kilometres"),
    ("length", 1609.344, "mile miles"),
    ("length", 0.0254, "inch inches"),
    ("length", 0.3048, "foot feet ft"),
    ("data", 1e3, "kb kilobyte kilobytes"),
    ("data", 1e6, "mb megabyte megabytes"),
    ("data", 1e9, "gb gigabyte gigabytes"),
    ("data", 1e12, "tb terabyte terabytes"),
    ("volume", 0.001, "ml milliliter milliliters millilitre millilitres"),
    ("volume", 1.0, "l liter liters litre litres"),
    ("volume", 3.78541, "gallon gallons"),
    ("dollar", 1.0, "dollar dollars usd bucks"),
    ("euro", 1.0, "euro euros eur"),
    ("sterling", 1.0, "gbp quid"),
    ("rupee", 1.0, "rupee rupees rs inr"),
    ("yen", 1.0, "yen jpy"),
    ("percent", 1.0, "percent percentage pct"),
)
_UNIT_OF: Final = MappingProxyType(
    {name: (dimension, factor) for dimension, factor, names in _UNIT_TABLE for name in names.split()}
)
_SIGNS: Final = MappingProxyType({"$": "dollar", "€": "euro", "£": "sterling", "¥": "yen", "₹": "rupee"})
_WORDS: Final = frozenset((*_CARDINALS, *_ORDINALS, *_TIMES, *_SCALES))
_NUMERAL: Final = re.compile(r"(\d[\d,]*(?:\.\d+)?)([a-z]*)")
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d\d)(?::\d\d)?(am|pm)?")
_FRACTION: Final = re.compile(r"(\d{1,6})/(\d{1,6})")
_HALVES: Final = frozenset({"am", "pm"})
_ENDINGS: Final = frozenset({"st", "nd", "rd", "th"})


@dataclass(frozen=True, slots=True)
class Quantity:
    """``value`` is in the base unit of ``dimension`` ("" is a bare number; "clock" is minutes after midnight;
    "date" carries its digits in ``written``). ``bare`` is the number as it was written before its unit.
    ``weak``: the word may not mean a number at all ("one", "second", "half")."""

    value: float
    dimension: str = ""
    bare: float = 0.0
    written: str = ""
    weak: bool = False


def quantities_in(
    words: tuple[str, ...], gaps: tuple[str, ...], vocabulary: frozenset[str]
) -> frozenset[Quantity]:
    """Every quantity among ``words``; ``gaps[i]`` stands before word ``i`` and may hold a currency sign."""
    if _WORDS.isdisjoint(vocabulary) and not any(word[0].isdecimal() for word in vocabulary):
        return frozenset()
    return frozenset(_scan(words, gaps))


def is_number(word: str) -> bool:
    """Whether ``quantities_in`` may read ``word`` as a number or a part of one."""
    return word[0].isdecimal() or word in _WORDS


def is_unit(word: str) -> bool:
    """Whether ``word`` names a unit or a currency."""
    return word in _UNIT_OF or word in _HALVES


def _scan(words: tuple[str, ...], gaps: tuple[str, ...]) -> Iterator[Quantity]:
    index = 0
    while index < len(words):
        word = words[index]
        if word[0].isdecimal():
            quantity, index = _numeral(words, gaps, index)
            yield quantity
        elif word in _CARDINALS or (word in _SCALES and not _follows_number(words, index)):
            value, end = _spelled_number(words, index)
            weak = word == "one" and end == index + 1
            yield _with_unit(words, gaps, end, value, weak=weak)
            index = end
        elif word in _ORDINALS:
            yield Quantity(_ORDINALS[word], "ordinal", _ORDINALS[word], weak=word == "second")
            index += 1
        elif word in _TIMES:
            yield Quantity(_TIMES[word], "", _TIMES[word], weak=True)
            index += 1
        else:
            index += 1


def _follows_number(words: tuple[str, ...], index: int) -> bool:
    return index > 0 and (words[index - 1] in _CARDINALS or words[index - 1][0].isdecimal())


def _spelled_number(words: tuple[str, ...], index: int) -> tuple[float, int]:
    """The value of a run such as "two hundred and twenty five", and where it ends."""
    total, group, end = 0.0, 0.0, index
    previous = 0.0
    while end < len(words):
        word = words[end]
        if word in _CARDINALS:
            value = _CARDINALS[word]
            if previous and not (previous >= 20 and value < 10) and previous < 100:
                break
            group, previous = group + value, value
        elif word in _SCALES:
            scale = _SCALES[word]
            group, previous = (group or 1.0) * scale, scale
            if scale >= 1000:
                total, group = total + group, 0.0
        elif not (
            word == "and" and previous >= 100 and end + 1 < len(words) and words[end + 1] in _CARDINALS
        ):
            break
        end += 1
    return total + group, end


def _numeral(words: tuple[str, ...], gaps: tuple[str, ...], index: int) -> tuple[Quantity, int]:
    """The quantity that begins with the digits at ``index``, and where it ends."""
    word = words[index]
    following = words[index + 1] if index + 1 < len(words) else ""
    if clock := _CLOCK.fullmatch(word):
        half = clock[3] or (following if following in _HALVES else "")
        return _clock(int(clock[1]), int(clock[2]), half), index + 1
    if fraction := _FRACTION.fullmatch(word):
        return _fraction(fraction[1], fraction[2]), index + 1
    if (numeral := _NUMERAL.fullmatch(word)) is None:
        return Quantity(0.0, "date", written=word.replace("/", "-")), index + 1
    value, tail = _value(numeral[1]), numeral[2]
    if not tail and following in _SCALES:
        return _with_unit(words, gaps, index + 2, value * _SCALES[following], before=index), index + 2
    suffixed = _suffixed(value, tail or (following if following in _HALVES else ""))
    value *= _SUFFIXES.get(tail, 1.0)
    return suffixed or _with_unit(words, gaps, index + 1, value, before=index), index + 1


def _suffixed(value: float, tail: str) -> Quantity | None:
    """The quantity that a number becomes with "pm", "th" or a unit right after its digits, or ``None``."""
    if tail in _HALVES and value <= 24:
        return _clock(int(value), 0, tail)
    if tail in _ENDINGS:
        return Quantity(value, "ordinal", value)
    return _measured(value, tail) if tail in _UNIT_OF and tail not in _SUFFIXES and tail != "s" else None


def _fraction(above: str, below: str) -> Quantity:
    """The fraction as a number; or, as in "2016/17", the year in which a season begins."""
    is_season = len(above) == 4 and len(below) in {2, 4}
    value = float(above) if is_season else round(int(above) / (int(below) or 1), 9)
    return Quantity(value, "", value)


def _value(digits: str) -> float:
    """The number that digits with commas mean: 1,000 is a thousand, 1,00,000 a lakh, 2,5 two and a half."""
    head, comma, tail = digits[:200].partition(",")
    if comma and len(tail) in {1, 2} and tail.isdecimal():
        return float(f"{head}.{tail}")
    return float(digits[:200].replace(",", ""))


def _clock(hour: int, minute: int, half: str) -> Quantity:
    hour = hour % 12 + (12 if half == "pm" else 0) if half else hour
    return Quantity(float(hour * 60 + minute), "clock", float(hour * 60 + minute))


def _with_unit(
    words: tuple[str, ...],
    gaps: tuple[str, ...],
    end: int,
    value: float,
    *,
    before: int = -1,
    weak: bool = False,
) -> Quantity:
    """The number with the unit after it (at ``end``), or the currency sign before it (at ``before``)."""
    sign = _SIGNS.get(gaps[before][-1:]) if before >= 0 else None
    if sign:
        return Quantity(value, sign, value)
    if gaps[end][:1] == "%":
        return Quantity(value, "percent", value)
    if end < len(words) and words[end] in _UNIT_OF and gaps[end] in {" ", "-", ""}:
        return _measured(value, words[end])
    return Quantity(value, "", value, weak=weak)


def _measured(value: float, unit: str) -> Quantity:
    dimension, factor = _UNIT_OF[unit]
    return Quantity(round(value * factor, 6), dimension, value)
