"""The mask on texts of others: the phone library's own example numbers, published test cards, Faker's
locales; and cut at every place."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

import phonenumbers
import pytest
from faker import Faker
from phonenumbers import PhoneNumberFormat
from stdnum import luhn

from serve_app.errors import SettingsError
from serve_app.guardrails.mask import MOST_DOMAIN, MOST_HELD, Masker

KINDS = ("email", "phone", "card")
EVERYTHING = Masker(KINDS, ("US",))

CARDS = (
    *("4111 1111 1111 1111", "4111-1111-1111-1111", "4012888888881881", "4222222222222"),
    *("5555555555554444", "5105 1051 0510 5100", "2223003122003222", "378282246310005", "3714 496353 98431"),
    *("6011111111111117", "6011 0009 9013 9424", "3530111333300000", "3056 930902 5904", "38520000023237"),
    "6200000000000005",
)
"""Numbers that issuers and payment services publish for tests."""

TEXTS = (
    "mail joe.bloggs+x@example.co.uk, or call +44 20 7946 0958.",
    "card 4111 1111 1111 1111 12/26, then 378282246310005; end",
    "a@b@c.com and 4111111111111111@pay.com, git@example.org: done",
    "Tel.+49 30 901820 or (+49)30/901820, in 2024 there were 12,345 of 3.14159265358979",
    "1 2 3 4 " * 30 + "+44 20 7946 0958",
    "A" * 200 + "@example.com " + "joe@" + "a." * 200 + "com",
    "50% 2nd 12@ @12 v1.2.3 123e4567-e89b-12d3-a456-426614174000 (555x _x-23(99x",
    "請寫信給joe@example.com或打電話+44 20 7946 0958,謝謝",
    "почта иван@пример.рф, тел. +7 495 123-45-67",
    "+44 20 7946 0958x12 +442079460958+442079460959 4111111111111111" + " 5555555555554444" * 9,
    "(212) 736-5000x123 (212) 736-5000x (212) 736-5000xy 12x",
    "x" * 530 + "@example.com",
    "x." * 262 + "030 1234567 " + "a@" * 40 + "b.com " + "9" * 70 + " 12" * 25,
    "ends with a plus +",
    "ends with (",
    "ends with joe@example.com",
)


def in_pieces(text: str, cuts: Sequence[int], *, in_json: bool = False) -> str:
    stream = EVERYTHING.stream(in_json=in_json)
    places = [0, *cuts, len(text)]
    passed = [stream.feed(text[begin:end]) for begin, end in pairwise(places)]
    return "".join(passed) + stream.feed("", final=True)


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_masked_alike_wherever_it_is_cut(text: str) -> None:
    whole = EVERYTHING.masked(text)
    assert all(in_pieces(text, [place]) == whole for place in range(len(text) + 1))
    assert in_pieces(text, range(len(text))) == whole


def test_random_texts_are_masked_alike_wherever_they_are_cut() -> None:
    parts = [
        *("@", ".", "joe", "example.com", "+44 20 7946 0958", "4111 1111 1111 1111", " ", "-", "1", "23"),
        *("(", "x", "_", "%", "+", "\n", "é", "\\", '"', "(212) 736-5000", "a" * 30, "9" * 25),
    ]
    chance = random.Random(20)
    for _ in range(300):
        text = "".join(chance.choices(parts, k=chance.randint(1, 25)))
        for in_json in (False, True):
            whole = EVERYTHING.masked(text, in_json=in_json)
            cuts = sorted(chance.sample(range(len(text)), len(text) // 3))
            assert in_pieces(text, cuts, in_json=in_json) == whole, text


def test_no_more_is_held_back_than_a_word_a_number_or_a_domain() -> None:
    for text in ("x" * 5000, "9 " * 2500, "a@" * 2500, "joe@" + "a." * 2500, "(+" * 2500):
        stream = EVERYTHING.stream()
        passed = 0
        for place, char in enumerate(text, start=1):
            passed += len(stream.feed(char))
            assert place - passed <= MOST_HELD + 1 + MOST_DOMAIN
    stream = EVERYTHING.stream()
    assert stream.feed("Plain words pass, the last one") == "Plain words pass, the last "
    assert stream.feed(" ") == "one "


def test_what_others_see_around_a_match_stays() -> None:
    text = "Write to joe@example.com. Or call +44 20 7946 0958, (4111 1111 1111 1111)!"
    assert EVERYTHING.masked(text) == "Write to [email]. Or call [phone], ([card])!"


def examples() -> Iterator[tuple[str, str, str]]:
    """Region, and the library's own example of a number of each kind, written with and without its
    country."""
    kinds = (phonenumbers.PhoneNumberType.FIXED_LINE, phonenumbers.PhoneNumberType.MOBILE)
    for region in sorted(phonenumbers.SUPPORTED_REGIONS):
        for kind in kinds:
            number = phonenumbers.example_number_for_type(region, kind)
            if number is not None:
                abroad = phonenumbers.format_number(number, PhoneNumberFormat.INTERNATIONAL)
                at_home = phonenumbers.format_number(number, PhoneNumberFormat.NATIONAL)
                yield region, abroad, at_home


def share_found(texts: Sequence[tuple[Masker, str]], mark: str) -> float:
    """Of texts that stand in a sentence: those of which nothing is left but the mark."""
    found = [masker.masked(f"Reach me: {text}, please") for masker, text in texts]
    return sum(each == f"Reach me: [{mark}], please" for each in found) / len(texts)


def test_numbers_of_every_country_are_found() -> None:
    maskers = {region: Masker(("phone",), (region,)) for region, _, _ in examples()}
    abroad = [(Masker(("phone",)), number) for _, number, _ in examples()]
    at_home = [(maskers[region], number) for region, _, number in examples()]
    assert len(abroad) > 400
    assert share_found(abroad, "phone") >= 0.98
    assert share_found(at_home, "phone") >= 0.9


def test_published_test_cards_are_found() -> None:
    assert share_found([(EVERYTHING, card) for card in CARDS], "card") == 1.0


LOCALES = ("en_US", "de_DE", "fr_FR", "es_MX", "pl_PL", "el_GR", "ru_RU", "ja_JP", "zh_CN", "hi_IN")


def test_what_faker_makes_is_found() -> None:
    emails: list[tuple[Masker, str]] = []
    cards: list[tuple[Masker, str]] = []
    for locale in LOCALES:
        fake = Faker(locale)
        fake.seed_instance(7)
        emails += [(EVERYTHING, fake.ascii_email()) for _ in range(30)]
        cards += [(EVERYTHING, fake.credit_card_number()) for _ in range(30)]
    assert share_found(emails, "email") == 1.0
    assert share_found([each for each in cards if len(each[1]) > 12], "card") >= 0.98


def test_what_is_no_address_number_or_card_stays() -> None:
    fake = Faker(list(LOCALES))
    fake.seed_instance(11)
    kinds = ("text", "date", "time", "uuid4", "ipv4", "ipv6", "ean13", "isbn13", "md5", "sha256", "name")
    texts = [str(getattr(fake, kind)()) for kind in kinds for _ in range(100)]
    texts += [f"{fake.pyfloat()} {fake.random_int(0, 10**9)} {fake.iso8601()}" for _ in range(100)]
    for masker, most in ((Masker(KINDS), 0.005), (EVERYTHING, 0.01)):
        touched = [text for text in texts if masker.masked(text) != text]
        assert len(touched) <= len(texts) * most, touched


def test_digits_without_a_valid_check_digit_are_no_card() -> None:
    wrong = [card[:-1] + str((int(card[-1]) + 1) % 10) for card in CARDS]
    assert not any(luhn.is_valid("".join(filter(str.isdigit, card))) for card in wrong)
    assert [EVERYTHING.masked(card) for card in wrong] == wrong


def test_masked_json_stays_json() -> None:
    values = {
        "to": "a\njoe@example.com",
        "n": 4111111111111111,
        "list": [378282246310005, 1],
        "minus": -4111111111111111,
        "é": "+44 20 7946 0958\t",
    }
    for ascii_only in (True, False):
        text = json.dumps(values, ensure_ascii=ascii_only)
        masked = EVERYTHING.masked(text, in_json=True)
        assert json.loads(masked) == {
            "to": "a\n[email]",
            "n": 0,
            "list": [0, 1],
            "minus": 0,
            "é": "[phone]\t",
        }
        for place in range(len(text)):
            assert in_pieces(text, [place], in_json=True) == masked


def test_only_the_kinds_that_are_asked_for_are_masked() -> None:
    text = "joe@example.com +44 20 7946 0958 4111 1111 1111 1111"
    assert Masker(("email",)).masked(text) == "[email] +44 20 7946 0958 4111 1111 1111 1111"
    assert Masker(("card",)).masked(text) == "joe@example.com +44 20 7946 0958 [card]"


def test_a_region_that_does_not_exist_is_named() -> None:
    with pytest.raises(SettingsError, match="'XX'"):
        Masker(("phone",), ("XX",))
