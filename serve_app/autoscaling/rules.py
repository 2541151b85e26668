"""The autoscaler's objectives and bounds."""

from __future__ import annotations

from dataclasses import dataclass

ENOUGH_REQUESTS = 100.0
"""Fewer requests than this say nothing about a share of late ones. Otherwise one burst of six long prompts in
an idle window would start eight replicas, and the first late answers of a fleet would make it larger."""


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """``late_share`` of the first tokens may come after ``ttft_objective_s``. Above that, a replica is only
    added if it would have kept ``worth_share`` of the window's requests from being late: the largest burst
    of an hour does not justify the fleet that would have met it. 0 holds the objective at any cost.

    ``window_s``: traffic of the last so many seconds is expected to return. ``headroom``: share by which
    traffic may grow before a fleet that was just reduced misses the objective (without it more answers of the
    code trace are late than the hours that it saves are worth). ``hold_s``: replicas that were needed within
    this time are kept, and at least for as long as a start takes (300 s: the stabilisation window of
    Kubernetes' autoscaler). ``utilisation``: share of its capacity (prefill, slots, KV cache) that a replica
    gives to steady traffic; it decides on even traffic, such as the conversation trace.
    ``requests_per_replica``: how many a replica should run at once (``None``: its capacity).
    ``zero_after_s``: after this idle time a fleet with ``min_replicas`` 0 is stopped. Up to ``max_sleeping``
    replicas are put to sleep instead of being stopped. ``start_s``, ``prefill_tokens_per_s`` and
    ``service_s`` are used until they are measured; the last two are those of an 8B model on one recent GPU,
    as in ``serve_app.fleet.pace``.

    Raises:
        ValueError: a value is out of its range; the message names it.
    """

    min_replicas: int = 1
    max_replicas: int = 1
    ttft_objective_s: float = 1.0
    itl_objective_s: float | None = None
    late_share: float = 0.1
    worth_share: float = 0.05
    window_s: float = 600.0
    hold_s: float = 300.0
    headroom: float = 0.1
    utilisation: float = 0.8
    requests_per_replica: float | None = None
    zero_after_s: float = 300.0
    max_sleeping: int = 0
    start_s: float = 60.0
    prefill_tokens_per_s: float = 8000.0
    service_s: float = 5.0

    def __post_init__(self) -> None:
        if not 0 <= self.min_replicas <= self.max_replicas or self.max_replicas < 1:
            raise ValueError(
                f"min_replicas ({self.min_replicas}) and max_replicas ({self.max_replicas}): expected "
                "0 <= min <= max and max >= 1"
            )
        for name in ("late_share", "utilisation"):
            self._expect(name, 0 < getattr(self, name) <= 1, "a share above 0, at most 1")
        for name in ("headroom", "worth_share", "hold_s", "zero_after_s", "max_sleeping"):
            self._expect(name, getattr(self, name) >= 0, "0 or more")
        positive = ("ttft_objective_s", "window_s", "start_s", "prefill_tokens_per_s", "service_s")
        for name in (*positive, "itl_objective_s", "requests_per_replica"):
            value = getattr(self, name)
            self._expect(name, value is None or value > 0, "more than 0")

    def _expect(self, name: str, fits: bool, expectation: str) -> None:
        if not fits:
            raise ValueError(f"{name} is {getattr(self, name)!r}; expected {expectation}")

    def bounded(self, replicas: float) -> int:
        """``replicas`` within the bounds."""
        return int(max(self.min_replicas, min(self.max_replicas, replicas)))
