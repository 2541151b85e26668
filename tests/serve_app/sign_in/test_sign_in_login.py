"""A login's state: PKCE, state, nonce, and callbacks that are not its end."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from serve_app.errors import BadRequest
from serve_app.settings.sign_in import ConsoleSignInSettings
from serve_app.sign_in.login import Endpoints, Login, Logins, SignInFailed, challenge, identity_token
from serve_app.sign_in.tokens import InvalidToken

ISSUER = "https://login.example.com"
CONSOLE = ConsoleSignInSettings(client_id="console", url="https://llm.example.com/team/")
ENDPOINTS = Endpoints(f"{ISSUER}/authorize?tenant=x", f"{ISSUER}/token")


def logins(secret: bytes = b"s" * 32, issuer: str = ISSUER) -> Logins:
    return Logins(secret, issuer, CONSOLE)


def begun(page: str = "fleet", now: float = 0.0) -> tuple[dict[str, str], str]:
    url, sealed = logins().begin(ENDPOINTS, page, now)
    assert url.startswith(f"{ISSUER}/authorize?tenant=x&")
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}, sealed


def answer(**values: Any) -> bytes:
    return urlencode(values).encode()


def test_a_login_asks_with_pkce_state_and_nonce_that_no_other_has() -> None:
    asked, sealed = begun()
    assert asked["response_type"] == "code"
    assert asked["code_challenge_method"] == "S256"
    assert asked["redirect_uri"] == "https://llm.example.com/team/sign-in/callback"
    assert asked["scope"] == "openid profile email"
    for name in ("state", "nonce", "code_challenge"):
        assert len(asked[name]) >= 43
        assert asked[name] != begun()[0][name]
        assert asked[name] not in sealed


def test_the_challenge_is_that_of_the_rfc() -> None:
    # RFC 7636, appendix B.
    assert challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == (
        "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    )


def test_the_callback_of_this_login_gives_its_code_and_page() -> None:
    asked, sealed = begun()
    login, code = logins().returned(sealed, answer(code="c1", state=asked["state"], iss=ISSUER), 1.0)
    assert (code, login.page) == ("c1", "fleet")
    assert challenge(login.verifier) == asked["code_challenge"]


@pytest.mark.parametrize(
    "page", ["https://evil.example", "//evil.example", "/\\evil", "Fleet", "", "a/b", "a\nb", "x" * 33]
)
def test_no_page_leads_to_another_site(page: str) -> None:
    with pytest.raises(BadRequest, match="no page of the console"):
        logins().begin(ENDPOINTS, page, 0.0)


def test_a_callback_that_is_not_this_browsers_is_refused() -> None:
    asked, sealed = begun()
    mine, other = answer(code="c", state=asked["state"]), answer(code="c", state=begun()[0]["state"])
    refusals = {
        "begun none": [(None, mine, 1.0), ("x", mine, 1.0), (sealed, mine, 601.0)],
        "`state`": [(sealed, other, 1.0), (sealed, answer(code="c"), 1.0), (sealed, b"", 1.0)],
        "another provider": [(sealed, answer(code="c", state=asked["state"], iss="https://evil"), 1.0)],
        "refused it": [(sealed, answer(error="access_denied", state=asked["state"]), 1.0)],
        "no code": [(sealed, answer(state=asked["state"]), 1.0)],
        "cannot be read": [
            (sealed, mine + b"&code=d", 1.0),
            (sealed, answer(code="c" * 5000, state=asked["state"]), 1.0),
            (sealed, b"&".join(b"a%d=1" % number for number in range(30)), 1.0),
            (sealed, b"code=\xff", 1.0),
        ],
    }
    for reason, cases in refusals.items():
        for given, query, now in cases:
            with pytest.raises(SignInFailed, match=reason) as caught:
                logins().returned(given, query, now)
            assert asked["state"] not in caught.value.message


def test_a_login_of_another_application_or_issuer_is_none() -> None:
    asked, sealed = begun()
    query = answer(code="c", state=asked["state"])
    for other in (logins(b"t" * 32), logins(issuer="https://other.example")):
        with pytest.raises(SignInFailed, match="begun none"):
            other.returned(sealed, query, 1.0)


def test_the_client_proves_itself_in_the_way_that_the_provider_takes() -> None:
    login = Login("s", "n", "v" * 43, "fleet", 600.0)
    headers, body = logins().exchange(ENDPOINTS, login, "c", "a:b c")
    assert headers["authorization"] == "Basic Y29uc29sZTphJTNBYiUyMGM="
    assert b"a%3Ab" not in body
    assert b"code_verifier=" + b"v" * 43 in body
    by_body = Endpoints(ENDPOINTS.authorization_endpoint, ENDPOINTS.token_endpoint, ("client_secret_post",))
    headers, body = logins().exchange(by_body, login, "c", "secret")
    assert "authorization" not in headers
    assert b"client_id=console&client_secret=secret" in body
    headers, body = logins().exchange(ENDPOINTS, login, "c", None)
    assert "authorization" not in headers
    assert b"client_id=console" in body


def test_an_identity_token_answers_one_login_of_this_client() -> None:
    login = Login("s", "n", "v", "fleet", 600.0)
    logins().require_own({"nonce": "n", "aud": "console"}, login)
    logins().require_own({"nonce": "n", "aud": ["console"]}, login)
    logins().require_own({"nonce": "n", "aud": ["console", "b"], "azp": "console"}, login)
    for wrong in (
        {"aud": "console"},
        {"nonce": "m", "aud": "console"},
        {"nonce": ["n"], "aud": "console"},
        {"nonce": "n", "aud": ["console", "b"]},
        {"nonce": "n", "aud": ["console", "b"], "azp": "b"},
        {"nonce": "n", "aud": "console", "azp": "b"},
        {"nonce": "n", "aud": "console", "azp": 7},
    ):
        with pytest.raises(InvalidToken):
            logins().require_own(wrong, login)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"id_token":7}', b'{"id_token":null}'])
def test_an_answer_without_an_identity_token_is_refused(body: bytes) -> None:
    with pytest.raises(SignInFailed):
        identity_token(body)
