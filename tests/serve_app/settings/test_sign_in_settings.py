"""Settings of sign-in that could not hold are refused before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from deployments.gateway.sign_in.sign_in import client_secret
from serve_app.errors import SettingsError
from serve_app.settings import Settings, parse_args

OIDC: dict[str, Any] = {
    "issuer": "https://login.example.com",
    "audiences": ["promptly"],
    "tenant_claim": "team",
}
CONSOLE = {"client_id": "console", "client_secret_env": "CONSOLE_SECRET", "url": "https://llm.example.com/"}


def settings(**changed: Any) -> Settings:
    oidc = {name: value for name, value in {**OIDC, **changed}.items() if value is not None}
    models = [{"id": "m", "upstreams": [{"name": "a", "url": "http://127.0.0.1:1/v1"}]}]
    return parse_args({"models": models, "auth": {"oidc": oidc}}, source="test")


def test_a_provider_alone_is_a_source_of_identities() -> None:
    assert settings().auth.oidc.tenant_claim == "team"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"issuer": "http://login.example.com"}, "https://host"),
        ({"issuer": "https://user@login.example.com"}, "https://host"),
        ({"issuer": "https://login.example.com?x=1"}, "https://host"),
        ({"issuer": "login.example.com"}, "https://host"),
        ({"issuer": "https://[::1"}, "https://host"),
        ({"jwks_url": "http://10.0.0.1/keys"}, "https://host"),
        ({"audiences": []}, "at least one"),
        ({"audiences": [""]}, "none that is empty"),
        ({"algorithms": ["none"]}, "algorithms"),
        ({"algorithms": ["HS256"]}, "algorithms"),
        ({"algorithms": []}, "at least one"),
        ({"tenant_claim": None}, "either `tenant` or `tenant_claim`"),
        ({"tenant": "all"}, "either `tenant` or `tenant_claim`"),
        ({"tenants": {"a": "no spaces"}}, "no tenant's name"),
        ({"roles": {"a": "admin"}}, "`roles` needs `role_claim`"),
        ({"role_claim": "groups", "roles": {"a": "root"}}, "roles"),
        ({"leeway_s": -1.0}, "leeway_s"),
        ({"console": {**CONSOLE, "url": "http://llm.example.com"}}, "https://host"),
        ({"console": {**CONSOLE, "scopes": ["profile"]}}, "`openid`"),
        ({"console": {**CONSOLE, "scopes": ["openid", "a b"]}}, "without spaces"),
    ],
    ids=str,
)
def test_settings_that_could_not_hold_are_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=r"auth\.oidc") as caught:
        settings(**changed)
    assert said in str(caught.value)


def test_the_secret_of_the_consoles_client_comes_from_its_variable() -> None:
    signing_in = settings(console=CONSOLE)
    assert client_secret(signing_in, {"CONSOLE_SECRET": "s3cret\n"}) == "s3cret"
    with pytest.raises(SettingsError, match="CONSOLE_SECRET"):
        client_secret(signing_in, {"CONSOLE_SECRET": " "})
    assert client_secret(settings(), {}) is None
    assert client_secret(settings(console={**CONSOLE, "client_secret_env": None}), {}) is None
