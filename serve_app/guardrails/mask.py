"""Finds e-mail addresses, phone and card numbers in a text that comes in pieces, and replaces them.

What is passed on depends on the text alone, never on where its pieces were cut: a piece is held back while
what follows could still change how it is read. That is at most a word or a number of ``MOST_HELD``
characters; behind an ``@`` also the domain, of at most ``MOST_DOMAIN``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Protocol

from serve_app.errors import SettingsError

EMAIL, PHONE, CARD = "email", "phone", "card"
MOST_HELD = 64
"""Characters. The local part of an address has at most as many (RFC 5321), and no number is longer."""
MOST_DOMAIN = 320
TAIL_HELD = 59
WORD_WINDOW = 512
"""Characters of a word that are looked at together: a text without spaces takes no more time than others."""

MOST_TRIES = 4
"""Groups of digits in a window that the library tries to read as a phone number."""
LEAST_PHONE_DIGITS = 7
LEAST_CARD_DIGITS = 13

_LETTERS = "A-Za-z\u00c0-\u024f\u0370-\u052f"
"""Letters of words that can be part of an address: Latin, Greek, Cyrillic. Scripts without spaces between
words are left out: a whole sentence would be held back."""
_ALNUM = f"0-9_{_LETTERS}"
_LOCAL = rf"{_ALNUM}.%+\-"
_SPACES = " \u00a0\u2007\u2009\u202f\u3000"
_SEPARATORS = rf"{_SPACES}.()/\-\u2010-\u2015\u2212\uff0d"
_PLUS = "+\uff0b"

NUMBER = re.compile(rf"[({_PLUS}]{{0,3}}\d[\d{_SEPARATORS}]*")
NUMBER_BEGINS = re.compile(rf"[({_PLUS}]{{1,3}}\Z")
WORD = re.compile(rf"[{_LOCAL}@]*")
IN_WORD = re.compile(rf"[{_LOCAL}@]+\Z")
JOINS = re.compile(rf"[{_ALNUM}@%]")
EXTENSION = re.compile(r"[xX]\d")
"""Behind a phone number."""
DOMAIN = re.compile(rf"[{_ALNUM}.\-]*")
ADDRESS = re.compile(
    rf"[{_ALNUM}][{_LOCAL}]{{0,63}}@(?:[0-9{_LETTERS}][0-9{_LETTERS}\-]{{0,62}}\.)+"
    rf"(?:xn--[0-9A-Za-z\-]{{2,59}}|[{_LETTERS}]{{2,63}})"
)
NUMBER_IN_WORD = re.compile(rf"(?:(?<=[._%\-])\+?|(?<=[{_LETTERS}])\+)\d[\d.\-]{{0,{TAIL_HELD - 1}}}$")
"""A number at the end of a word, such as in `Tel.030 1234567`."""

_PLAIN = rf"[{_LETTERS}]++(?=[^{_LOCAL}@])"
OTHER = re.compile(rf"(?:[^\d{_ALNUM}({_PLUS}]|{_PLAIN})+")
"""What is passed on at once: no beginning of a number or of a word, or a word of letters that has ended."""
OTHER_IN_JSON = re.compile(rf"(?:[^\d{_ALNUM}({_PLUS}\\]|{_PLAIN}|\\(?:u[0-9A-Fa-f]{{4}}|[^u]))+")
ESCAPE_BEGINS = re.compile(r"\\(?:u[0-9A-Fa-f]{0,3})?\Z")

_DASH = r"[ .\-\u00a0\u2010-\u2013]"
CARD_LAYOUTS = tuple(  # in a look-ahead: what looks like a card may begin within another
    re.compile(rf"(?<!\d)(?<!\d[.,])(?=({layout})(?![.,]?\d))")
    for layout in (
        r"\d{13,19}",
        rf"\d{{4}}({_DASH})\d{{4}}\2\d{{4}}\2\d{{4}}\2\d{{3}}",
        rf"\d{{4}}({_DASH})\d{{4}}\2\d{{4}}\2\d{{4}}",
        rf"\d{{4}}({_DASH})\d{{6}}\2\d{{4,5}}",
    )
)
ISSUED = re.compile(
    r"4\d{12}(?:\d{3}){0,2}|5[0-8]\d{14}(?:\d{2,3})?|2[2-7]\d{14}|3[47]\d{13}|35\d{14,17}|6\d{15}(?:\d{2,3})?"
    r"|3(?:0[0-5]|[689]\d)\d{11}(?:\d{2,5})?|(?:2131|1800)\d{11}"
)
"""Prefixes and lengths of the known issuers (ISO/IEC 7812), without the shortest of Maestro: a tenth of all
product codes that begin with 5 or 6 would be one."""

IPV4 = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")

MAY_MATCH = re.compile(r"[\d@]")

JSON_NUMBER_BEFORE = frozenset(":[,-")

Found = tuple[int, int, str]
"""Start, end and kind of a match."""


class Numbers(Protocol):
    """Finds the first number in a window of a text; a match may not end at a ``cut`` end."""

    def first(self, before: str, window: str, after: str, *, cut: bool) -> Found | None: ...


class LibraryNumbers:
    """Phone numbers by `phonenumbers`, the check digit of cards by `python-stdnum`."""

    def __init__(self, kinds: Collection[str], regions: Sequence[str]) -> None:
        """``regions``: whose phone numbers are found without their country's code.

        Raises:
            SettingsError: the libraries are not installed, or a region is not known.
        """
        try:
            import phonenumbers
            from stdnum import luhn
        except ImportError:
            raise SettingsError(
                "guardrails: a `mask` needs two libraries: pip install 'promptly-serve[guardrails]'"
            ) from None
        unknown = sorted(set(regions) - set(phonenumbers.SUPPORTED_REGIONS))
        if unknown:
            raise SettingsError(
                f"guardrails: mask.regions = {unknown[0]!r}: expected a country's two letters, such as `DE`"
            )
        self._phones, self._cards = PHONE in kinds, CARD in kinds
        self._regions = tuple(regions)
        self._library = phonenumbers
        self._has_check_digit = luhn.is_valid

    def first(self, before: str, window: str, after: str, *, cut: bool) -> Found | None:
        digits = sum(map(str.isdigit, window))
        found: list[Found] = []
        text, shift = before + window + after, len(before)
        end = len(before) + len(window)
        if self._cards and digits >= LEAST_CARD_DIGITS:
            found += self._card(text)
        if self._phones and digits >= LEAST_PHONE_DIGITS:
            found += self._phone(text)
        inside = [each for each in found if each[0] >= shift and each[1] + cut <= end]
        if not inside:
            return None
        begin, stop, kind = min(inside, key=lambda each: (each[0], -each[1]))
        return begin - shift, stop - shift, kind

    def _card(self, text: str) -> list[Found]:
        found = []
        for layout in CARD_LAYOUTS:
            for match in layout.finditer(text):
                number = "".join(filter(str.isdigit, match[1]))
                if ISSUED.fullmatch(number) and self._has_check_digit(number):
                    found.append((match.start(1), match.end(1), CARD))
        return found

    def _phone(self, text: str) -> list[Found]:
        library = self._library
        valid = library.Leniency.VALID
        matchers = [library.PhoneNumberMatcher(text, each, valid, MOST_TRIES) for each in self._regions]
        if "+" in text or "\uff0b" in text:  # with its country's code a number is known by its length
            matchers.append(library.PhoneNumberMatcher(text, None, library.Leniency.POSSIBLE, MOST_TRIES))
        found = []
        for matcher in matchers:
            match = next(iter(matcher), None)
            if match is not None and IPV4.fullmatch(match.raw_string) is None:
                found.append((match.start, match.end, PHONE))
        return found


class MaskStream:
    """One text. ``in_json``: it is JSON, such as the arguments of a tool call, and stays JSON.
    What it escapes is not looked at: :mod:`serve_app.guardrails.escapes` comes before."""

    def __init__(self, numbers: Numbers | None, *, emails: bool, in_json: bool = False) -> None:
        self._numbers = numbers
        self._emails = emails
        self._in_json = in_json
        self._other = OTHER_IN_JSON if in_json else OTHER
        self._held = ""
        self._in_word = False
        self._before = ""
        """The character before what is held."""
        self._said = ""
        """The same, spaces left out."""
        self._passed: list[str] = []

    def feed(self, piece: str, *, final: bool = False) -> str:
        """The part of the text that is safe to pass on; all of it at the ``final`` piece."""
        text, at = self._held + piece, 0
        while at < len(text):
            then = self._step(text, at, final)
            if then is None:
                break
            at = then
        self._held = text[at:]
        passed = "".join(self._passed)
        self._passed.clear()
        if final:
            self._in_word, self._before, self._said = False, "", ""
        return passed

    def _step(self, text: str, at: int, final: bool) -> int | None:
        """Where to go on; ``None``: what follows decides."""
        if self._in_word:
            return self._word(text, at, final)
        other = self._other.match(text, at)
        if other is not None:
            return self._pass(text, at, other.end())
        number = NUMBER.match(text, at, at + MOST_HELD + 1)  # further than that decides nothing
        if number is not None:
            return self._number(text, at, number.end(), final)
        if not final and (NUMBER_BEGINS.match(text, at) or (self._in_json and ESCAPE_BEGINS.match(text, at))):
            return None
        if WORD.match(text, at, at + 1) is None or text[at] in _PLUS or text[at] in "(\\":
            return self._pass(text, at, at + 1)
        return self._word(text, at, final)

    def _pass(self, text: str, at: int, end: int) -> int:
        if end > at:
            part = text[at:end]
            self._passed.append(part)
            self._before = part[-1]
            self._said = part.rstrip()[-1:] or self._said
        return end

    def _mask(self, text: str, at: int, end: int, kind: str) -> int:
        bare = self._in_json and text[at:end].isdecimal() and self._said in JSON_NUMBER_BEFORE
        self._passed.append("0" if bare else f"[{kind}]")
        self._before = self._said = text[end - 1]
        return end

    def _word(self, text: str, at: int, final: bool) -> int | None:
        most = at + WORD_WINDOW
        run = WORD.match(text, at, most)
        end = at if run is None else run.end()
        sign = text.find("@", at, end) if self._emails else -1
        if sign >= 0:
            return self._address(text, at, sign, final)
        if end == most or (end == len(text) and not final):
            if end - MOST_HELD <= at:
                return None
            self._in_word = True
            return self._pass(text, at, end - MOST_HELD)
        self._in_word = False
        number = NUMBER_IN_WORD.search(text, max(at, end - TAIL_HELD - 1), end)
        return self._pass(text, at, end if number is None else number.start())

    def _address(self, text: str, at: int, sign: int, final: bool) -> int | None:
        """A word with an ``@``."""
        self._in_word = True
        begin = max(at, sign - MOST_HELD)
        most = sign + 1 + MOST_DOMAIN
        domain = DOMAIN.match(text, sign + 1, most)
        end = sign + 1 if domain is None else domain.end()
        if end == len(text) and end < most and not final:
            return None if begin == at else self._pass(text, at, begin)
        found = ADDRESS.search(text, begin, end) if "." in text[sign + 1 : end] else None
        if found is None:
            return self._pass(text, at, sign + 1)
        self._pass(text, at, found.start())
        return self._mask(text, found.start(), found.end(), EMAIL)

    def _number(self, text: str, at: int, end: int, final: bool) -> int | None:
        cut = end - at > MOST_HELD
        if cut:
            end = at + MOST_HELD
        elif end == len(text) and not final:
            return None
        behind = text[end : end + 1]
        if behind and behind in "xX" and end + 1 == len(text) and not (final or cut):
            return None
        joins = not cut and JOINS.match(behind) is not None and EXTENSION.match(text, end) is None
        if joins:  # its last group is the beginning of a word
            word = IN_WORD.search(text[at:end])
            begin = end if word is None else at + word.start()
            if begin == at:
                self._in_word = True
                return at
            end, behind = begin, text[begin]
        found = None
        if self._numbers is not None:
            found = self._numbers.first(self._before, text[at:end], behind, cut=cut)
        if found is not None:
            self._pass(text, at, at + found[0])
            return self._mask(text, at + found[0], at + found[1], found[2])
        if cut:
            return self._pass(text, at, _group_end(text, at, end))
        self._in_word = joins
        return self._pass(text, at, end)


def _group_end(text: str, at: int, end: int) -> int:
    """Half a window further: behind a group of digits if one ends there."""
    half = at + MOST_HELD // 2
    return next((place for place in range(half, end) if not text[place].isdigit()), half)


class Masker:
    """Makes a :class:`MaskStream` for each text."""

    def __init__(self, kinds: Collection[str], regions: Sequence[str] = ()) -> None:
        """Raises: SettingsError: a library is missing, or a region is not known."""
        self._emails = EMAIL in kinds
        needs = PHONE in kinds or CARD in kinds
        self._numbers = LibraryNumbers(kinds, regions) if needs else None

    def stream(self, *, in_json: bool = False) -> MaskStream:
        return MaskStream(self._numbers, emails=self._emails, in_json=in_json)

    def masked(self, text: str, *, in_json: bool = False) -> str:
        if MAY_MATCH.search(text) is None:  # most names and short texts
            return text
        return self.stream(in_json=in_json).feed(text, final=True)
