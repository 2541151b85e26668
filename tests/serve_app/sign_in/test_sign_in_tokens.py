"""Tokens that are accepted, and the attacks of RFC 8725, with tokens that joserfc and authlib sign."""

from __future__ import annotations

import json
import time
import warnings
from base64 import urlsafe_b64encode
from collections.abc import Callable

import pytest
from joserfc import jws
from joserfc.jwk import ECKey, OctKey, RSAKey
from support.identity_provider import AUDIENCE, ISSUER, KEYS, as_hmac_key, claims, jwks, sign, token

from serve_app.settings.sign_in import OidcSettings
from serve_app.sign_in.key_set import KeySet
from serve_app.sign_in.tokens import Checker, Claims, InvalidToken, looks_like_token

SETTINGS = OidcSettings(issuer=ISSUER, audiences=(AUDIENCE,), tenant_claim="team")
ALL = KeySet.read(jwks())


def check(
    given: str, keys: KeySet = ALL, settings: OidcSettings = SETTINGS, now: float | None = None
) -> Claims:
    checker = Checker(settings)
    return checker.claims(given, checker.header(given), keys, time.time() if now is None else now)


def refused(
    given: str, keys: KeySet = ALL, settings: OidcSettings = SETTINGS, now: float | None = None
) -> str:
    """Why; the reason holds nothing of the token."""
    with pytest.raises(InvalidToken) as caught:
        check(given, keys, settings, now)
    said = caught.value.message
    assert not any(len(part) > 5 and part in said for part in given.split("."))
    assert caught.value.status == 401
    return said


def encoded(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def unsigned(header: bytes, signature: str = "eA") -> str:
    return f"{encoded(header)}.{encoded(json.dumps(claims()).encode())}.{signature}"


@pytest.mark.parametrize("kid", KEYS)
def test_each_kind_of_signature_is_accepted(kid: str) -> None:
    assert check(token(kid=kid))["sub"] == "ada"
    assert looks_like_token(token(kid=kid))


def test_the_usual_name_of_edwards_signatures_is_accepted_without_a_warning() -> None:
    assert check(sign(claims(), "o", alg="EdDSA"))["sub"] == "ada"


def test_a_token_without_a_key_id_is_accepted_where_one_key_fits() -> None:
    assert check(token(kid=None))["sub"] == "ada"
    two = KeySet.read(jwks("e", extra=[ECKey.generate_key("P-256").as_dict(private=False)]))
    assert "no key" in refused(token(kid=None), keys=two)


def test_authlibs_own_tokens_are_accepted() -> None:
    with warnings.catch_warnings(record=True):  # its import sets a filter that goes before pytest's
        from authlib.jose import jwt as authlib_jwt

    made = authlib_jwt.encode({"alg": "RS256", "kid": "r"}, claims(), KEYS["r"].as_pem(private=True))
    assert check(made.decode())["team"] == "maths"


ATTACKS: dict[str, tuple[Callable[[], str], str]] = {
    "none": (lambda: unsigned(b'{"alg":"none"}', ""), "no signed JWT"),
    "none, with something as a signature": (lambda: unsigned(b'{"alg":"none"}'), "algorithm"),
    "NoNe": (lambda: unsigned(b'{"alg":"NoNe","kid":"e"}'), "algorithm"),
    "HMAC with the public key": (
        lambda: sign(claims(), "r", key=as_hmac_key("r"), alg="HS256"),
        "algorithm",
    ),
    "another's key under a known name": (
        lambda: sign(claims(), "e", key=ECKey.generate_key("P-256")),
        "signature",
    ),
    "a name that is not known": (lambda: sign(claims(), "x", key=KEYS["e"], alg="ES256"), "no key"),
    "the name of a key of another kind": (lambda: sign(claims(), "r", key=KEYS["e"], alg="ES256"), "no key"),
    "the attacker's key in the header": (
        lambda: sign(
            claims(),
            "x",
            key=(own := ECKey.generate_key("P-256")),
            alg="ES256",
            jwk=own.as_dict(private=False),
            jku="https://evil.example/keys",
        ),
        "no key",
    ),
    "another issuer": (lambda: token("https://evil.example"), "another issuer"),
    "an issuer with a slash more": (lambda: token(ISSUER + "/"), "another issuer"),
    "no issuer": (lambda: token(iss=None), "another issuer"),
    "issuers as a list": (lambda: token(iss=[ISSUER]), "another issuer"),
    "another audience": (lambda: token(aud="mail"), "another audience"),
    "no audience": (lambda: token(aud=None), "another audience"),
    "an audience that begins like ours": (lambda: token(aud=["promptly-test", 7]), "another audience"),
    "expired": (lambda: token(exp=time.time() - 31), "expired"),
    "no expiry": (lambda: token(exp=None), "`exp` is no time"),
    "an expiry of text": (lambda: token(exp="4102444800"), "`exp` is no time"),
    "an expiry of true": (lambda: token(exp=True), "`exp` is no time"),
    "an expiry without an end": (lambda: token(exp=1e300), "`exp` is no time"),
    "not valid yet": (lambda: token(nbf=time.time() + 60), "`nbf`"),
    "issued tomorrow": (lambda: token(iat=time.time() + 86_400), "`iat`"),
    "a logout token": (lambda: sign(claims(), typ="logout+jwt"), "`typ`"),
    "an extension": (lambda: unsigned(b'{"alg":"ES256","kid":"e","crit":["b64"],"b64":false}'), "`crit`"),
    "a header of text": (lambda: unsigned(b'"alg"'), "header"),
    "a header with two algorithms": (lambda: unsigned(b'{"alg":"ES256","alg":"none"}'), "header"),
    "a deep header": (lambda: unsigned(b'{"alg":' + b"[" * 2500), "header"),
    "a kid that is an object": (lambda: unsigned(b'{"alg":"ES256","kid":{}}'), "`kid`"),
    "a huge token": (lambda: token(more="x" * 9000), "max_token_bytes"),
    "padding": (lambda: token() + "=", "no signed JWT"),
    "a line break": (lambda: token() + "\n", "no signed JWT"),
    "encrypted": (lambda: "abcdef.b.c.d.e", "no signed JWT"),
    "empty": (lambda: "", "no signed JWT"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_for_its_reason(name: str) -> None:
    make, reason = ATTACKS[name]
    assert reason in refused(make())


def test_a_changed_claim_breaks_the_signature() -> None:
    head, _, signature = token().split(".")
    for payload in (claims(sub="eve"), {**claims(), "team": "secret"}):
        given = f"{head}.{encoded(json.dumps(payload).encode())}.{signature}"
        assert "signature" in refused(given)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"iss":"https://login.example.com","team":"a","team":"b"}',
        b'{"exp":NaN}',
        b"[" * 3000,
        b"[]",
        b'"x"',
        b"\xff",
    ],
)
def test_a_signed_payload_that_is_ambiguous_or_no_object_is_refused(payload: bytes) -> None:
    given = jws.serialize_compact({"alg": "ES256", "kid": "e"}, payload, KEYS["e"])
    assert "claims" in refused(given)


def test_clocks_may_differ_by_the_leeway() -> None:
    now = time.time()
    assert check(token(exp=now - 20), now=now)
    assert check(token(nbf=now + 20, iat=now + 20), now=now)
    strict = SETTINGS.model_copy(update={"leeway_s": 0.0})
    assert "expired" in refused(token(exp=now - 1), settings=strict, now=now)


def test_a_clock_that_steps_judges_by_where_it_is() -> None:
    given = token()
    assert "expired" in refused(given, now=time.time() + 86_400)
    assert "not valid yet" in refused(given, now=time.time() - 86_400)


def test_one_of_several_audiences_is_enough() -> None:
    assert check(token(aud=["mail", AUDIENCE]))


def test_keys_for_something_else_check_nothing() -> None:
    curve = KEYS["e"].as_dict(private=False)
    odd = [
        {"kty": "RSA", "kid": "weak", "n": encoded(b"\xff" * 64), "e": "AQAB"},
        {"kty": "oct", "kid": "s", "k": "c2VjcmV0"},
        {**curve, "kid": "enc", "use": "enc"},
        {**curve, "kid": "ops", "key_ops": ["deriveKey"]},
        {**curve, "kid": "off", "x": encoded(b"\x01" * 32)},
        {"kty": "EC", "kid": "c", "crv": "P-999", "x": "AQ", "y": "AQ"},
        {**curve, "kid": "mixed", "crv": "Ed25519"},
        {**curve, "kid": "mixed", "crv": "RSA"},
        {"kty": "OKP", "kid": "mixed", "crv": "P-256", "x": encoded(b"\x01" * 32)},
        {"kty": ["EC"], "kid": "l"},
        {"kid": 7, "kty": "RSA"},
        "key",
        None,
    ]
    found = KeySet.read(json.dumps({"keys": [*odd, KEYS["r"].as_dict(private=True)]}).encode())
    assert [key.kid for key in found.keys] == ["r"]
    assert not found.keys[0].key.is_private, "a private key in a JWKS is not taken over"


def test_a_key_that_names_its_algorithm_is_for_that_one_only() -> None:
    narrow = {"keys": [{**KEYS["r"].as_dict(private=False), "alg": "RS512"}]}
    assert "no key" in refused(token(kid="r"), keys=KeySet.read(json.dumps(narrow).encode()))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"keys":{}}',
        b'{"keys":[]}',
        b'{"keys":[{"kty":"oct","k":"eA"}]}',
        json.dumps({"keys": [{}] * 101}).encode(),
        b'{"keys":' + b"[" * 100_000,
    ],
    ids=range(8),
)
def test_what_is_no_set_of_keys_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        KeySet.read(body)


def test_a_symmetric_key_of_a_provider_signs_nothing() -> None:
    secret = OctKey.import_key("a-secret-of-a-careless-provider!")
    keys = KeySet.read(jwks("e", extra=[{**secret.as_dict(), "kid": "s"}]))
    assert "not allowed" in refused(sign(claims(), "s", key=secret, alg="HS256"), keys=keys)


def test_two_keys_of_one_name_are_told_apart_by_their_kind() -> None:
    other = RSAKey.generate_key(2048, {"kid": "e"})
    keys = KeySet.read(jwks("e", extra=[other.as_dict(private=False)]))
    assert check(token(), keys=keys)
    assert check(sign(claims(), "e", key=other, alg="RS256"), keys=keys)
