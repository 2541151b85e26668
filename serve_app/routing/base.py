"""The contract of a routing policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from serve_app.fleet import Member


@dataclass(frozen=True, slots=True)
class RoutingRequest:
    """What routing knows about a request.

    ``prompt_tokens`` is an estimate from the text's length; ``blocks`` are chained hashes of the prompt's
    text, one for each full block (empty unless the policy needs them); ``session`` is the tenant's session;
    ``cached_tokens`` estimates, by member name, how much of the prompt each member has cached (the router
    fills it in for policies that need blocks). ``beginning`` names the prompt's beginning, the same at every
    gateway, where no member is known to hold any of it. ``prefixes`` are the names by which other gateways
    know the prompt; there are none if there is no other.
    """

    prompt_tokens: float
    blocks: tuple[int, ...] = ()
    session: str | None = None
    cached_tokens: Mapping[str, float] = field(default_factory=dict)
    beginning: str | None = None
    prefixes: tuple[bytes, ...] = ()

    def uncached_tokens(self, member: Member) -> float:
        return self.prompt_tokens - self.cached_tokens.get(member.report.replica_id, 0.0)


class RoutingPolicy(Protocol):
    """Orders the candidates of one request, best first. A pure function: it must not change them, must not
    block, and returns every candidate once."""

    def __call__(self, request: RoutingRequest, candidates: Sequence[Member], /) -> list[Member]: ...


@dataclass(frozen=True, slots=True)
class RegisteredPolicy:
    """A policy and its inputs. ``needs_blocks``: it needs to know which member holds a prompt's prefix;
    ``keeps_sessions``: a request that names a session is routed by ``affinity`` instead, unless settings say
    otherwise."""

    order: RoutingPolicy
    needs_blocks: bool = False
    keeps_sessions: bool = False
