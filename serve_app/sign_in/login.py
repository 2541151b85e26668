"""One login to the console: the authorization code flow with PKCE (RFC 7636), state and nonce."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import msgspec

from serve_app.errors import BadRequest
from serve_app.settings.sign_in import ConsoleSignInSettings
from serve_app.sign_in.sealed import Sealer
from serve_app.sign_in.strict_json import read_object
from serve_app.sign_in.tokens import Claims, InvalidToken

LOGIN_S = 600.0
"""Time for the whole login, most of it a person's at the provider."""

CALLBACK = "/sign-in/callback"
PAGE = re.compile(r"[a-z]{1,32}")
MAX_VALUE_CHARS = 4096
MAX_ANSWER_BYTES = 1 << 18


class SignInFailed(BadRequest):
    """The login ends here; the message holds no code, state or token."""

    def __init__(self, why: str) -> None:
        super().__init__(f"The sign-in did not succeed: {why}. Begin again.", code="sign_in_failed")


class Login(msgspec.Struct, frozen=True):
    """What the browser keeps, sealed, while its user is at the provider. ``page``: where the console opens
    afterwards; ``expires_at``: Unix seconds."""

    state: str
    nonce: str
    verifier: str
    page: str
    expires_at: float


class Endpoints(msgspec.Struct, frozen=True):
    """What a login needs of the provider's configuration."""

    authorization_endpoint: str
    token_endpoint: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class Logins:
    """Begins logins and takes their ends. ``secret`` as for :class:`Sealer`."""

    def __init__(self, secret: bytes, issuer: str, settings: ConsoleSignInSettings) -> None:
        self._sealer = Sealer(secret, f"login:{issuer}", Login)
        self._issuer = issuer
        self._settings = settings
        self._redirect_uri = settings.url + CALLBACK

    def begin(self, endpoints: Endpoints, page: str, now: float) -> tuple[str, str]:
        """The provider's address for this login, and the sealed state for the browser.

        Raises:
            BadRequest: ``page`` names no page of the console.
        """
        if PAGE.fullmatch(page) is None:  # never a URL: there is no way to another site
            raise BadRequest("`page` is no page of the console.", param="page", code="unknown_page")
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        login = Login(state, nonce, verifier, page, now + LOGIN_S)
        asked = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._redirect_uri,
            "scope": " ".join(self._settings.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge(verifier),
            "code_challenge_method": "S256",
        }
        sign = "&" if urlsplit(endpoints.authorization_endpoint).query else "?"
        return endpoints.authorization_endpoint + sign + urlencode(asked), self._sealer.seal(login)

    def returned(self, sealed: str | None, query: bytes, now: float) -> tuple[Login, str]:
        """The login that a callback belongs to, and its code.

        Raises:
            SignInFailed: this browser began none, it took too long, the provider refused it, or the answer
                is not that of this login.
        """
        login = None if sealed is None else self._sealer.open(sealed)
        if login is None or login.expires_at <= now:
            raise SignInFailed("this browser has begun none, or it took too long")
        answer = _query(query)
        if not hmac.compare_digest(answer.get("state", "").encode(), login.state.encode()):
            raise SignInFailed("its `state` is not that of this browser's login")
        if answer.get("iss", self._issuer) != self._issuer:  # RFC 9207
            raise SignInFailed("another provider answered")
        if "error" in answer:
            raise SignInFailed("the provider refused it")
        if not answer.get("code"):
            raise SignInFailed("the provider sent no code")
        return login, answer["code"]

    def exchange(
        self, endpoints: Endpoints, login: Login, code: str, secret: str | None
    ) -> tuple[Mapping[str, str], bytes]:
        """Headers and body of the request for the tokens; ``secret`` is the client's."""
        headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
        asked = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": login.verifier,
        }
        ways = endpoints.token_endpoint_auth_methods_supported
        if secret is None:
            asked["client_id"] = self._settings.client_id
        elif "client_secret_basic" in ways or "client_secret_post" not in ways:
            headers["authorization"] = _basic(self._settings.client_id, secret)
        else:
            asked |= {"client_id": self._settings.client_id, "client_secret": secret}
        return headers, urlencode(asked).encode()

    def require_own(self, claims: Claims, login: Login) -> None:
        """The identity token is the answer to this login. Raises: InvalidToken."""
        nonce = claims.get("nonce")
        if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), login.nonce.encode()):
            raise InvalidToken("its `nonce` is not that of this login")
        client = self._settings.client_id
        party = claims.get("azp", client if isinstance(claims.get("aud"), str) else None)
        if party != client and (party is not None or claims.get("aud") != [client]):
            raise InvalidToken("it was issued to another client (`azp`)")


def challenge(verifier: str) -> str:
    """PKCE's `S256`: who intercepts the code cannot use it without the verifier."""
    return urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def identity_token(answer: bytes) -> str:
    """The identity token in the answer of the token endpoint. Raises: SignInFailed: there is none."""
    try:
        token: Any = read_object(answer).get("id_token")
    except ValueError:
        raise SignInFailed("the provider's answer cannot be read") from None
    if not isinstance(token, str):
        raise SignInFailed("the provider sent no identity token")
    return token


def _query(query: bytes) -> dict[str, str]:
    """Raises: SignInFailed: a name comes twice, or a value is too long."""
    try:
        found = parse_qs(query.decode("ascii"), max_num_fields=20, strict_parsing=False, errors="strict")
    except ValueError:
        raise SignInFailed("the provider's answer cannot be read") from None
    if any(len(values) != 1 or len(values[0]) > MAX_VALUE_CHARS for values in found.values()):
        raise SignInFailed("the provider's answer cannot be read")
    return {name: values[0] for name, values in found.items()}


def _basic(client: str, secret: str) -> str:
    """RFC 6749, 2.3.1: both are encoded as in a form before they are joined."""
    pair: Sequence[str] = [quote(each, safe="") for each in (client, secret)]
    return "Basic " + b64encode(":".join(pair).encode()).decode()
