"""The provider's public keys (a JWKS), and which of them a token must be signed with."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from serve_app.sign_in.strict_json import read_object

MAX_KEYS = 100
RSA_BITS = range(2048, 8193)
"""Shorter ones can be broken; of longer ones a check costs a millisecond."""

MAX_KID_CHARS = 256
KINDS: Mapping[str, tuple[str, ...]] = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
"""The public members of each kind of key. Others are left out: a provider's mistake puts no private key into
this process, and a symmetric key (`oct`) is no key at all here."""

FITS: Mapping[str, str] = {
    "RS256": "RSA",
    "RS384": "RSA",
    "RS512": "RSA",
    "PS256": "RSA",
    "PS384": "RSA",
    "PS512": "RSA",
    "ES256": "P-256",
    "ES384": "P-384",
    "ES512": "P-521",
    "EdDSA": "Ed25519",
    "Ed25519": "Ed25519",
}
"""The kind or curve of the key that each algorithm needs."""

CURVES: Mapping[str, tuple[str, ...]] = {"EC": ("P-256", "P-384", "P-521"), "OKP": ("Ed25519",)}
"""Of each kind that has curves. With a curve of another kind, joserfc fails in ways of its own."""


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """``fits``: its kind or curve (see ``FITS``); ``alg``: the only algorithm that it is for, if it says."""

    kid: str | None
    alg: str | None
    fits: str
    key: Key

    def suits(self, alg: str) -> bool:
        return FITS.get(alg) == self.fits and self.alg in (None, alg)


@dataclass(frozen=True, slots=True)
class KeySet:
    """All keys of a provider that can check signatures."""

    keys: tuple[VerifyingKey, ...]

    @classmethod
    def read(cls, jwks: bytes) -> KeySet:
        """Keys that are for something else, or that cannot be read, are left out.

        Raises:
            ValueError: this is no JWKS, or none of its keys can be used.
        """
        found = read_object(jwks).get("keys")
        if not isinstance(found, list):
            raise ValueError("it holds no `keys`")
        if len(found) > MAX_KEYS:
            raise ValueError(f"it holds more than {MAX_KEYS} keys")
        keys = tuple(key for each in found if (key := _usable(each)) is not None)
        if not keys:
            raise ValueError("it holds no key that checks signatures")
        return cls(keys)

    def knows(self, kid: str | None) -> bool:
        """Whether a token that names this key, or none, can be judged by these keys."""
        return kid is None or any(key.kid == kid for key in self.keys)

    def find(self, kid: str | None, alg: str) -> Key | None:
        """The one key for a token; ``None`` if there is none, or if more than one could be meant."""
        fitting = [key for key in self._named(kid) if key.suits(alg)]
        return fitting[0].key if len(fitting) == 1 else None

    def _named(self, kid: str | None) -> Sequence[VerifyingKey]:
        return self.keys if kid is None else [key for key in self.keys if key.kid == kid]


def _usable(found: Any) -> VerifyingKey | None:
    if not isinstance(found, dict) or found.get("use", "sig") != "sig" or not _verifies(found.get("key_ops")):
        return None
    kid, alg, kind = found.get("kid"), found.get("alg"), found.get("kty")
    if not (kid is None or isinstance(kid, str)) or not (alg is None or isinstance(alg, str)):
        return None
    members = KINDS.get(kind) if isinstance(kind, str) else None
    if members is None or not all(isinstance(found.get(each), str) for each in members):
        return None
    curves = CURVES.get(str(kind))
    if curves is not None and found["crv"] not in curves:
        return None
    public = {"kty": str(kind), **{each: found[each] for each in members}}
    try:
        key, fits = _imported(public)
    except (JoseError, ValueError, TypeError, OverflowError):
        return None
    return None if key is None else VerifyingKey(kid, alg, fits, key)


def _verifies(operations: Any) -> bool:
    return operations is None or (isinstance(operations, list) and "verify" in operations)


def _imported(public: dict[str, Any]) -> tuple[Key | None, str]:
    """The key and what it fits; none for one that is too weak. Raises: JoseError, ValueError."""
    match public["kty"]:
        case "RSA":
            modulus = str(public["n"])
            bits = 8 * len(urlsafe_b64decode(modulus + "=" * (-len(modulus) % 4)))
            return (RSAKey.import_key(public), "RSA") if bits in RSA_BITS else (None, "")
        case "EC":
            curve = ECKey.import_key(public)
            assert curve.public_key is not None  # reads the point: one that is not on the curve is refused
            return curve, str(public["crv"])
        case _:
            okp = OKPKey.import_key(public)
            assert okp.public_key is not None
            return okp, str(public["crv"])
