"""Keeps all requests of a session at one member, whichever gateway routes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b

from serve_app.fleet import Member
from serve_app.routing.base import RoutingRequest
from serve_app.routing.least_wait import least_wait

_DIGEST_BYTES = 8
_DIGESTS = 2.0 ** (8 * _DIGEST_BYTES)


def session(request: RoutingRequest, candidates: Sequence[Member]) -> list[Member]:
    """Weighted rendezvous hashing (Thaler and Ravishankar 1998; the logarithm for weights: Schindelhauer
    and Schomaker 2005): a member that joins or leaves moves only the sessions that it gets or had.

    A request without a session goes to the member with the shortest wait.
    """
    if request.session is None:
        return least_wait(request, candidates)
    return home_first(request.session, candidates)


def home_first(name: str, candidates: Sequence[Member]) -> list[Member]:
    """The session's home, then where it would go without it, and so on."""
    seed = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES)

    def key(member: Member) -> float:
        """Smaller is better: an exponential random variable with rate ``weight``."""
        digest = seed.copy()
        digest.update(member.name.encode())
        share = (int.from_bytes(digest.digest()) + 1) / _DIGESTS
        return -math.log(share) / member.report.weight

    return sorted(candidates, key=key)
