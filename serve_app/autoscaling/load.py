"""The autoscaler's input: the load of one model's engines and of the queue in front of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """One replica that serves.

    ``waiting_tokens`` are prompt tokens that it has accepted and not prefilled yet; ``kv_cache_usage`` is a
    share from 0 to 1; ``capacity`` is how many requests it runs at once. ``prefill_tokens_per_s`` (while it
    prefills), ``service_s`` (how long a request runs) and ``itl_s`` (mean time between two tokens of a
    stream) are recent means; ``None``: not known. ``withdrawn`` is 1 while it takes no new requests because
    the policy put it to sleep.
    """

    running: float = 0.0
    waiting: float = 0.0
    waiting_tokens: float = 0.0
    kv_cache_usage: float = 0.0
    capacity: float = 16.0
    prefill_tokens_per_s: float | None = None
    service_s: float | None = None
    itl_s: float | None = None
    withdrawn: float = 0.0


@dataclass(frozen=True, slots=True)
class FleetLoad:
    """One model's replicas, and the requests that no replica has yet.

    ``starting`` and ``waking`` replicas were ordered and do not serve yet; ``sleeping`` ones are kept with
    their weights off the device. ``queued`` requests wait at the gateways, ``queued_tokens`` is the size of
    their prompts. The other fields count *since the last call*: ``arrived`` and ``arrived_tokens`` the
    requests that the cache did not answer, wherever they are now, and their prompt tokens; ``first_tokens``
    and ``late_first_tokens`` the answers that began, and those of them later than the objective.
    """

    ready: tuple[ReplicaLoad, ...] = ()
    starting: int = 0
    waking: int = 0
    sleeping: int = 0
    queued: float = 0.0
    queued_tokens: float = 0.0
    arrived: float = 0.0
    arrived_tokens: float = 0.0
    first_tokens: float = 0.0
    late_first_tokens: float = 0.0

    @property
    def serving(self) -> int:
        """Replicas that serve, or will once they have started or woken."""
        return len(self.ready) + self.starting + self.waking

    @property
    def ongoing(self) -> float:
        """Requests at the engines and in the queue."""
        return self.queued + sum(replica.running + replica.waiting for replica in self.ready)

    @property
    def unprefilled_tokens(self) -> float:
        """Prompt tokens that still have to be prefilled."""
        return self.queued_tokens + sum(replica.waiting_tokens for replica in self.ready)
