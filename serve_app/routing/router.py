"""One model's routing: the inputs of its policy, and the tiers within which the policy decides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from serve_app.fleet import Member
from serve_app.openai.requests import ParsedRequest
from serve_app.routing.affinity import affinity
from serve_app.routing.base import RegisteredPolicy, RoutingPolicy, RoutingRequest
from serve_app.routing.prefix import prefix
from serve_app.routing.prefix_index import EACH, TOLD, PrefixIndex, blocks_in_cache
from serve_app.routing.prompt import (
    BYTES_PER_TOKEN,
    beginning_of,
    blocks_of,
    picture_name,
    prefixes_of,
    prompt_text,
)

LONG_PROMPT_TOKENS = 1024.0
"""From here on a prompt is found again by its prefix, whether or not its request names a session: OpenAI
caches prompts from this length (https://platform.openai.com/docs/guides/prompt-caching). Hashing one that
long takes some microseconds; computing it again, an engine's tens of milliseconds."""


Tell = Callable[[str, Sequence[bytes]], None]
"""Called with a member's name and the prefixes of a prompt that was sent to it."""


class Router:
    """Decides with a policy, and records what was sent where if the policy needs it."""

    def __init__(
        self, policy: RegisteredPolicy, *, keeps_sessions: bool = True, tell: Tell | None = None
    ) -> None:
        """``keeps_sessions``: sessions, and pictures and long prompts of requests that name none, keep to the
        member that has them cached, if the policy allows that. ``tell``: other gateways shall know what was
        sent where."""
        self._tell = tell
        self._policy = policy
        self._keeps_sessions = keeps_sessions and policy.keeps_sessions
        self._sent = PrefixIndex[int](EACH)
        self._heard = PrefixIndex[bytes](TOLD)

    def describe(
        self,
        parsed: ParsedRequest,
        session: str | None,
        salt: str | None = None,
        *,
        begins_session: bool = False,
    ) -> RoutingRequest:
        """The policy's input for a request. ``salt`` is the prefix-cache salt that engines get.
        A picture stands for a session: what an engine computed of it serves all who ask about it.
        ``begins_session``: nothing of the session is cached at its home, so a prefix that a member holds
        counts for more: some clients send the whole conversation in each request, and never go on with one.
        """
        if session is None and self._keeps_sessions:
            session = picture_name(parsed, salt)
        text = prompt_text(parsed)
        tokens = len(text) / BYTES_PER_TOKEN
        keeps = self._keeps_sessions and (session is not None or tokens >= LONG_PROMPT_TOKENS)
        if not self._policy.needs_blocks and not keeps:
            return RoutingRequest(tokens, session=session)
        blocks = blocks_of(text, parsed.model, salt)
        prefixes = () if self._tell is None else prefixes_of(text, parsed.model, salt)
        cached = self._cached_tokens(blocks, prefixes)
        if begins_session and cached and self._keeps_sessions:
            session = None
        beginning = None if session is not None or not keeps else beginning_of(text, parsed.model, salt)
        return RoutingRequest(tokens, blocks, session, cached, beginning, prefixes)

    def current(self, request: RoutingRequest) -> RoutingRequest:
        """The same request after a wait: the caches may have filled meanwhile."""
        if not request.blocks:
            return request
        return replace(request, cached_tokens=self._cached_tokens(request.blocks, request.prefixes))

    def _cached_tokens(self, blocks: Sequence[int], prefixes: Sequence[bytes]) -> dict[str, float]:
        found = self._sent.cached_tokens(blocks)
        for name, tokens in self._heard.cached_tokens(prefixes).items():
            found[name] = max(tokens, found.get(name, 0.0))
        return found

    def order(self, request: RoutingRequest, candidates: Sequence[Member]) -> list[Member]:
        """Every candidate once, best first: lower priority numbers first, and the policy decides among
        equals. Members without room come after all that have some: own replicas first, a vendor when they are
        full."""
        if len(candidates) == 1:
            return [*candidates]
        tiers: dict[tuple[bool, int], list[Member]] = defaultdict(list)
        for member in candidates:
            tiers[not member.has_room, member.report.priority].append(member)
        order = self._order_for(request)
        return [member for tier in sorted(tiers) for member in order(request, tiers[tier])]

    def _order_for(self, request: RoutingRequest) -> RoutingPolicy:
        if not self._keeps_sessions:
            return self._policy.order
        if request.session is not None:
            return affinity
        return prefix if request.blocks else self._policy.order

    def sent(self, request: RoutingRequest, member: Member) -> None:
        """The request was sent to ``member``, which will have its prompt cached."""
        if request.blocks:
            most = blocks_in_cache(member.report.kv_cache_tokens)
            self._sent.record(member.name, request.blocks, most)
        if request.prefixes and self._tell is not None:
            self._tell(member.name, request.prefixes)

    def heard(self, prefixes: Sequence[bytes], member: Member) -> None:
        """Another gateway has sent a prompt with these prefixes to ``member``."""
        self._heard.record(member.name, prefixes, blocks_in_cache(member.report.kv_cache_tokens))

    def keep(self, names: Iterable[str]) -> None:
        """Forget all members except these."""
        kept = set(names)
        for index in (self._sent, self._heard):
            for gone in set(index.names) - kept:
                index.forget(gone)
