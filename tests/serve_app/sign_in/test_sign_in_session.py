"""Sessions in cookies, and which pages they count from."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from http.cookies import SimpleCookie

import pytest

from serve_app.api.roles import Role
from serve_app.errors import OriginNotAllowed
from serve_app.request.auth import Identity
from serve_app.sign_in.session import Sessions, cookie, origin_of

SECRET = b"s" * 32
URL = "https://llm.example.com/team"
ADA = Identity("maths", Role.VIEWER, user="ada", models=("a",))
OWN = {"sec-fetch-site": "same-origin"}


def sessions(secret: bytes = SECRET, issuer: str = "https://login.example.com", url: str = URL) -> Sessions:
    return Sessions(secret, issuer, url, 60.0)


def value_of(set_cookie: str) -> str:
    return set_cookie.partition(";")[0]


def test_a_session_is_read_back_by_every_gateway_of_the_application() -> None:
    sent = value_of(sessions().begin(ADA, 100.0))
    found = sessions().identity({"cookie": sent, **OWN}, 159.0)
    assert found is not None
    assert (found.tenant, found.role, found.user, found.models) == ("maths", Role.VIEWER, "ada", ("a",))
    assert found.expires_at == 160.0
    assert sessions().identity({"cookie": sent, **OWN}, 160.0) is None


def test_a_cookie_over_https_is_bound_to_the_host_and_hidden_from_scripts() -> None:
    (name, morsel), *_ = SimpleCookie(sessions().begin(ADA, 0.0)).items()
    assert name == "__Host-promptly-session"
    assert (morsel["path"], morsel["domain"], morsel["samesite"]) == ("/", "", "Strict")
    assert morsel["secure"]
    assert morsel["httponly"]
    assert morsel["max-age"] == "60"
    assert "ada" not in morsel.value
    plain = sessions(url="http://localhost:8000").begin(ADA, 0.0)
    assert plain.startswith("promptly-session=")
    assert "Secure" not in plain


def test_a_session_of_another_application_issuer_or_kind_is_none() -> None:
    sent = value_of(sessions(b"t" * 32).begin(ADA, 100.0))
    assert sessions().identity({"cookie": sent, **OWN}, 100.0) is None
    sent = value_of(sessions(issuer="https://other.example").begin(ADA, 100.0))
    assert sessions().identity({"cookie": sent, **OWN}, 100.0) is None


def test_no_changed_bit_of_a_cookie_is_accepted() -> None:
    name, _, value = value_of(sessions().begin(ADA, 100.0)).partition("=")
    sealed = urlsafe_b64decode(value + "=" * (-len(value) % 4))
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        sent = f"{name}={urlsafe_b64encode(changed).decode().rstrip('=')}"
        assert sessions().identity({"cookie": sent, **OWN}, 100.0) is None
    for sent in ("", "x", "é", "=" * 40, "A" * 5000, value[:-4], value + "AAAA"):
        assert sessions().identity({"cookie": f"{name}={sent}", **OWN}, 100.0) is None


def test_two_cookies_of_one_name_are_none() -> None:
    sent = value_of(sessions().begin(ADA, 100.0))
    assert sessions().identity({"cookie": f"{sent}; {sent}", **OWN}, 100.0) is None
    assert cookie({"cookie": f"a=1; {sent}; b=2"}, sessions().cookies.session) == sent.partition("=")[2]
    assert cookie({}, "a") is None


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "same-origin"},
        {"origin": "https://llm.example.com"},
        {"origin": "https://llm.example.com", "sec-fetch-site": "same-origin"},
    ],
)
def test_a_session_counts_from_the_applications_own_pages(headers: dict[str, str]) -> None:
    sent = value_of(sessions().begin(ADA, 100.0))
    assert sessions().identity({"cookie": sent, **headers}, 100.0)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site"},
        {"origin": "null"},
        {"origin": "https://evil.example"},
        {"origin": "https://llm.example.com.evil.example"},
        {"origin": "https://llm.example.com:8443"},
        {"origin": "http://llm.example.com"},
        {"origin": "https://other.example.com", "sec-fetch-site": "same-origin"},
        {"origin": "https://llm.example.com", "sec-fetch-site": "cross-site"},
    ],
)
def test_a_session_does_not_count_from_other_pages(headers: dict[str, str]) -> None:
    sent = value_of(sessions().begin(ADA, 100.0))
    with pytest.raises(OriginNotAllowed):
        sessions().identity({"cookie": sent, **headers}, 100.0)


def test_an_identity_that_is_too_large_for_a_cookie_is_refused() -> None:
    with pytest.raises(ValueError, match="3800"):
        sessions().begin(Identity("maths", user="ada", models=tuple(map(str, range(2000)))), 0.0)


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://LLM.example.com:443/x", "https://llm.example.com"),
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://[::1]:80", "http://[::1]"),
    ],
)
def test_an_origin_is_written_as_browsers_write_it(url: str, origin: str) -> None:
    assert origin_of(url) == origin
