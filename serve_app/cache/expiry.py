"""How long an answer may be reused: by rules, else by the default."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from serve_app.cache.keys import CacheKey
from serve_app.settings import CacheSettings


@dataclass(frozen=True, slots=True)
class ExpiryRule:
    """A rule applies to requests that match all of its parts. ``ttl_s`` is in seconds; 0: not stored.

    ``prompt`` is searched in the text that is looked up, ``headers`` in the request's headers of those names.
    """

    ttl_s: float
    prompt: re.Pattern[str] | None = None
    model: str | None = None
    tenant: str | None = None
    tag: str | None = None
    headers: Mapping[str, re.Pattern[str]] = field(default_factory=dict)

    def fits(self, key: CacheKey, tags: Sequence[str], headers: Mapping[str, str]) -> bool:
        return (
            self.model in (None, key.model)
            and self.tenant in (None, key.tenant)
            and (self.tag is None or self.tag in tags)
            and all(_found(pattern, headers.get(name)) for name, pattern in self.headers.items())
            and (self.prompt is None or self.prompt.search(key.text) is not None)
        )


@dataclass(frozen=True, slots=True)
class Expiry:
    """The first rule that applies decides. A request may ask for a shorter time, never for a longer one.

    After ``ttl_s`` an answer is *stale* for ``stale_s`` seconds: it still answers the same request while a
    fresh answer is fetched.
    """

    default_ttl_s: float
    stale_s: float = 0.0
    rules: tuple[ExpiryRule, ...] = ()

    def ttl_s(
        self, key: CacheKey, tags: Sequence[str], headers: Mapping[str, str], asked_s: float | None = None
    ) -> float:
        """The answer's lifetime in seconds; 0: it is not stored."""
        rule = next((rule for rule in self.rules if rule.fits(key, tags, headers)), None)
        allowed_s = self.default_ttl_s if rule is None else rule.ttl_s
        return allowed_s if asked_s is None else min(asked_s, allowed_s)

    def ends_at(self, now: float, ttl_s: float) -> float:
        """When an entry no longer answers; Unix seconds, as ``now``."""
        return now + ttl_s + self.stale_s

    def is_stale(self, expires_at: float, now: float) -> bool:
        """Whether an entry that still answers is stale."""
        return now >= expires_at - self.stale_s


def _found(pattern: re.Pattern[str], value: str | None) -> bool:
    return value is not None and pattern.search(value) is not None


def expiry_of(settings: CacheSettings) -> Expiry:
    """The rules of the settings, with their patterns compiled."""
    rules = tuple(
        ExpiryRule(
            ttl_s=rule.ttl_s,
            prompt=None if rule.prompt is None else re.compile(rule.prompt),
            model=rule.model,
            tenant=rule.tenant,
            tag=rule.tag,
            headers={name.lower(): re.compile(pattern) for name, pattern in rule.headers.items()},
        )
        for rule in settings.rules
    )
    return Expiry(settings.ttl_s, settings.stale_s, rules)
