"""Tokens of a provider beside keys, on every route, over real HTTP; and a provider that fails."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from joserfc.jwk import ECKey
from support.gateway import ADMIN, MODEL, Running, gateway
from support.graph import eventually
from support.identity_provider import AUDIENCE, ScriptedProvider, claims, jwks, scripted_provider, sign, token

from serve_app.request.auth import KeySources

RULES: Mapping[str, Any] = {
    "audiences": [AUDIENCE],
    "tenant_claim": "team",
    "role_claim": "groups",
    "roles": {"bosses": "admin", "auditors": "viewer"},
    "models_claim": None,
    "min_refresh_s": 0.1,
    "refresh_s": 3600.0,
}


def oidc(provider: ScriptedProvider, **changed: Any) -> dict[str, Any]:
    given = {"issuer": provider.url, **RULES, **changed}
    return {"auth": {"oidc": {name: value for name, value in given.items() if value is not None}}}


@asynccontextmanager
async def signing_in(provider: ScriptedProvider, **changed: Any) -> AsyncIterator[Running]:
    async with gateway(key_sources=KeySources(), **oidc(provider, **changed)) as running:
        yield running


def bearer(given: str) -> dict[str, str]:
    return {"authorization": f"Bearer {given}"}


async def ask(running: Running, given: str, path: str = "/v1/me") -> tuple[int, dict[str, Any]]:
    async with running.http.get(path, headers=bearer(given)) as response:
        return response.status, await response.json()


async def refusal(running: Running, given: str, path: str = "/v1/me") -> tuple[int, str]:
    """Status and code; no part of the token comes back."""
    status, said = await ask(running, given, path)
    text = json.dumps(said)
    assert not any(len(part) > 8 and part in text for part in given.split("."))
    return status, said["error"]["code"]


async def test_a_token_sends_requests_as_its_tenant() -> None:
    async with scripted_provider() as provider, signing_in(provider) as running:
        given = token(provider.url)
        answer = await running.post("hello", headers=bearer(given))
        assert answer.status == 200
        status, who = await ask(running, given)
        assert (status, who["tenant"], who["user"], who["role"]) == (200, "maths", "ada", "user")
        assert (await refusal(running, "nothing"))[1] == "invalid_api_key"
        async with running.http.get("/v1/models") as response:
            assert response.status == 401


async def test_keys_and_tokens_work_side_by_side() -> None:
    async with scripted_provider() as provider:
        auth = {"auth": {"keys_env": "KEYS", **oidc(provider)["auth"]}}
        async with gateway(tenants=["acme"], **auth) as running:
            async with running.http.get("/v1/me", headers=running.headers("acme")) as response:
                assert (await response.json())["tenant"] == "acme"
            assert (await ask(running, token(provider.url)))[1]["tenant"] == "maths"
            async with running.http.get("/admin/fleet", headers=running.headers(ADMIN)) as response:
                assert response.status == 200


async def test_roles_open_what_they_may_and_nothing_else() -> None:
    async with scripted_provider() as provider, signing_in(provider) as running:
        user, viewer, boss = (
            token(provider.url, groups=groups) for groups in ([], ["auditors"], ["auditors", "bosses"])
        )
        assert (await ask(running, boss, "/admin/fleet"))[0] == 200
        assert (await ask(running, viewer, "/admin/fleet"))[0] == 200
        assert await refusal(running, user, "/admin/fleet") == (403, "admin_only")
        for path, expected in (("/admin/cache", 403), ("/v1/chat/completions", 403)):
            method = running.http.delete if path.startswith("/admin") else running.http.post
            async with method(path, headers=bearer(viewer), json={"model": MODEL}) as response:
                assert response.status == expected


async def test_the_models_of_a_token_bind() -> None:
    async with scripted_provider() as provider, signing_in(provider, models_claim="models") as running:
        allowed, other = token(provider.url, models=[MODEL]), token(provider.url, models=["other"])
        assert (await running.post("hello", headers=bearer(allowed))).status == 200
        answer = await running.post("hello", headers=bearer(other))
        assert (answer.status, answer.error["code"]) == (403, "model_not_allowed")


async def test_each_dialect_says_in_its_own_shape_that_a_token_has_expired() -> None:
    async with scripted_provider() as provider, signing_in(provider) as running:
        old = token(provider.url, exp=time.time() - 3600)
        body = {"model": MODEL, "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}
        async with running.http.post("/v1/messages", json=body, headers=bearer(old)) as response:
            said = await response.json()
            assert response.status == 401
            assert response.headers["www-authenticate"] == 'Bearer error="invalid_token"'
            assert (said["type"], said["error"]["type"]) == ("error", "authentication_error")
            assert "expired" in said["error"]["message"]


async def test_a_token_is_checked_once_and_its_expiry_each_time() -> None:
    async with scripted_provider() as provider, signing_in(provider, leeway_s=0.0) as running:
        given = token(provider.url, exp=time.time() + 4)
        assert (await ask(running, given))[0] == 200

        async def expired() -> bool:
            return await refusal_or_none(running, given) == (401, "invalid_token")

        assert await eventually(expired, within_s=20)


async def refusal_or_none(running: Running, given: str) -> tuple[int, str] | None:
    status, said = await ask(running, given)
    return None if status == 200 else (status, said["error"]["code"])


async def test_a_new_key_of_the_provider_is_found_when_a_token_names_it() -> None:
    async with scripted_provider() as provider:
        provider.gives("/keys", jwks("r"))
        async with signing_in(provider) as running:
            assert (await ask(running, token(provider.url, "r")))[0] == 200
            provider.gives("/keys", jwks("r", "o"))
            await asyncio.sleep(0.11)  # auth.oidc.min_refresh_s
            assert (await ask(running, token(provider.url, "o")))[0] == 200


async def test_a_key_that_the_provider_withdraws_ends_its_tokens() -> None:
    async with scripted_provider() as provider, signing_in(provider) as running:
        given = token(provider.url, "e")
        assert (await ask(running, given))[0] == 200
        provider.gives("/keys", jwks("r"))
        await asyncio.sleep(0.11)  # auth.oidc.min_refresh_s
        assert await refusal(running, sign(claims(provider.url), "unknown", alg="ES256", key=EVIL)) == (
            401,
            "invalid_token",
        )
        assert await refusal(running, given) == (401, "invalid_token")


EVIL = ECKey.generate_key("P-256")


async def test_unknown_keys_make_few_requests_to_the_provider() -> None:
    async with scripted_provider() as provider, signing_in(provider, min_refresh_s=3600.0) as running:
        assert (await ask(running, token(provider.url)))[0] == 200
        tokens = [sign(claims(provider.url), f"k{n}", alg="ES256", key=EVIL) for n in range(20)]
        codes = await asyncio.gather(*(refusal(running, each) for each in tokens))
        assert set(codes) == {(401, "invalid_token")}
        assert provider.asked["/keys"] == 1


async def test_known_keys_go_on_without_the_provider_and_the_log_has_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scripted_provider() as provider:
        with caplog.at_level(logging.ERROR, "ray.serve"):
            async with signing_in(provider, refresh_s=1.0) as running:
                assert (await ask(running, token(provider.url)))[0] == 200
                provider.gives("/keys", b"gone", status=500)
                before = provider.asked["/keys"]

                async def asked_again() -> bool:
                    return provider.asked["/keys"] >= before + 2

                assert await eventually(asked_again, within_s=30)
                assert (await ask(running, token(provider.url, sub="eve")))[1]["user"] == "eve"
        lines = [record.getMessage() for record in caplog.records if "auth.oidc" in record.getMessage()]
        assert lines == [
            "auth.oidc: the provider's keys cannot be fetched (the known ones go on): it answered 500"
        ]


async def test_keys_count_no_longer_than_they_may() -> None:
    async with scripted_provider() as provider, signing_in(provider, keep_keys_s=0.2) as running:
        assert (await ask(running, token(provider.url)))[0] == 200
        provider.gives("/keys", b"", status=500)
        given = token(provider.url, sub="eve")
        await asyncio.sleep(0.25)  # auth.oidc.keep_keys_s
        assert await refusal(running, given) == (503, "sign_in_unavailable")


BAD: dict[str, dict[str, tuple[int, dict[str, str], bytes]]] = {
    "nonsense": {"/.well-known/openid-configuration": (200, {}, b"<html>hello</html>")},
    "another issuer's": {
        "/.well-known/openid-configuration": (
            200,
            {},
            b'{"issuer":"https://evil.example","jwks_uri":"https://evil.example/keys"}',
        )
    },
    "a redirect": {"/.well-known/openid-configuration": (302, {"location": "https://evil.example/"}, b"")},
    "no address of keys": {"/.well-known/openid-configuration": (200, {}, b"ISSUER")},
    "keys without an end": {"/keys": (200, {}, b'{"keys":[' + b" " * (1 << 19) + b"]}")},
    "keys that are none": {"/keys": (200, {}, b'{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}')},
    "an error": {"/keys": (503, {}, b"token-secret")},
}


@pytest.mark.parametrize("name", BAD)
async def test_a_provider_that_answers_nonsense_is_said_to_be_away(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_provider() as provider:
        for path, (status, headers, body) in BAD[name].items():
            own = json.dumps({"issuer": provider.url}).encode() if body == b"ISSUER" else body
            provider.gives(path, own, status, **headers)
        async with signing_in(provider) as running:
            given = token(provider.url)
            status, said = await ask(running, given)
            assert (status, said["error"]["code"]) == (503, "sign_in_unavailable")
            assert "auth.oidc" in said["error"]["message"]
            assert "secret" not in said["error"]["message"] + caplog.text
            assert "evil" not in said["error"]["message"]
            provider.configured()
            await asyncio.sleep(0.11)  # auth.oidc.min_refresh_s
            assert (await ask(running, given))[0] == 200, "it comes back by itself"


async def test_a_provider_that_does_not_answer_holds_nobody_but_those_who_need_it() -> None:
    async with scripted_provider() as provider:
        provider.slow_s = 2.0
        auth = {"auth": {"keys_env": "KEYS", **oidc(provider, timeout_s=0.3)["auth"]}}
        async with gateway(tenants=["acme"], **auth) as running:
            assert (await running.post("hello", headers=running.headers("acme"))).status == 200
            assert await refusal(running, token(provider.url)) == (503, "sign_in_unavailable")


async def test_nothing_listens_where_the_provider_should_be() -> None:
    provider = ScriptedProvider("http://127.0.0.1:9")
    async with signing_in(provider) as running:
        assert await refusal(running, token(provider.url)) == (503, "sign_in_unavailable")


async def test_claims_that_mean_nobody_here_are_refused_with_the_setting() -> None:
    async with scripted_provider() as provider, signing_in(provider) as running:
        for changed in ({"team": None}, {"team": 7}, {"team": "../x"}, {"sub": 7}, {"groups": {"a": 1}}):
            status, said = await ask(running, token(provider.url, **changed))
            assert (status, said["error"]["code"]) == (403, "claims_not_mapped")
            assert "auth.oidc" in said["error"]["message"] or "tenant's name" in said["error"]["message"]


async def test_a_wrong_token_is_not_saved_by_a_key_beside_it() -> None:
    async with scripted_provider() as provider:
        auth = {"auth": {"keys_env": "KEYS", **oidc(provider)["auth"]}}
        async with gateway(tenants=["acme"], **auth) as running:
            headers = bearer(token("https://evil.example")) | {"x-api-key": running.keys["acme"]}
            async with running.http.get("/v1/me", headers=headers) as response:
                assert response.status == 401


async def test_without_a_provider_a_token_is_a_key_that_nobody_knows() -> None:
    async with gateway(tenants=["acme"]) as running:
        assert await refusal(running, token()) == (401, "invalid_api_key")
        async with running.http.get("/sign-in", allow_redirects=False) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (404, "sign_in_off")
