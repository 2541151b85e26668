"""One model's routing: the inputs of its policy, and the tiers within which the policy decides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from serve_app.fleet import Member
from serve_app.openai.requests import ParsedRequest
from serve_app.routing.affinity import affinity
from serve_app.routing.base import RegisteredPolicy, RoutingRequest
from serve_app.routing.prefix_index import PrefixIndex, blocks_in_cache
from serve_app.routing.prompt import BYTES_PER_TOKEN, blocks_of, prompt_text


class Router:
    """Decides with a policy, and records what was sent where if the policy needs it."""

    def __init__(self, policy: RegisteredPolicy, *, keeps_sessions: bool = True) -> None:
        """``keeps_sessions``: requests that name a session keep to it, if the policy allows that."""
        self._policy = policy
        self._keeps_sessions = keeps_sessions and policy.keeps_sessions
        self._index = PrefixIndex()

    def describe(self, parsed: ParsedRequest, session: str | None, salt: str | None = None) -> RoutingRequest:
        """The policy's input for a request. ``salt`` is the prefix-cache salt that engines get."""
        text = prompt_text(parsed)
        tokens = len(text) / BYTES_PER_TOKEN
        if not self._policy.needs_blocks and not (self._keeps_sessions and session is not None):
            return RoutingRequest(tokens, session=session)
        blocks = blocks_of(text, parsed.model, salt)
        return RoutingRequest(tokens, blocks, session, self._index.cached_tokens(blocks))

    def current(self, request: RoutingRequest) -> RoutingRequest:
        """The same request after a wait: the caches may have filled meanwhile."""
        if not request.blocks:
            return request
        return replace(request, cached_tokens=self._index.cached_tokens(request.blocks))

    def order(self, request: RoutingRequest, candidates: Sequence[Member]) -> list[Member]:
        """Every candidate once, best first: lower priority numbers first, and the policy decides among
        equals. Members without room come after all that have some: own replicas first, a vendor when they are
        full."""
        if len(candidates) == 1:
            return [*candidates]
        tiers: dict[tuple[bool, int], list[Member]] = defaultdict(list)
        for member in candidates:
            tiers[not member.has_room, member.report.priority].append(member)
        keeps = self._keeps_sessions and request.session is not None
        order = affinity if keeps else self._policy.order
        return [member for tier in sorted(tiers) for member in order(request, tiers[tier])]

    def sent(self, request: RoutingRequest, member: Member) -> None:
        """The request was sent to ``member``, which will have its prompt cached."""
        if request.blocks:
            most = blocks_in_cache(member.report.kv_cache_tokens)
            self._index.record(member.name, request.blocks, most)

    def keep(self, names: Iterable[str]) -> None:
        """Forget all members except these."""
        for gone in set(self._index.names).difference(names):
            self._index.forget(gone)
