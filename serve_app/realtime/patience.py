"""How long each side of a session may be silent."""

from __future__ import annotations

from serve_app.errors import SessionTimeout, UpstreamFailed


class Patience:
    """Times are monotonic seconds. A client speaks with audio; other events are silence. ``idle_s``: of the
    client, except while the engine finishes an utterance;
    ``stall_s``: of the engine while it does."""

    def __init__(self, idle_s: float, stall_s: float) -> None:
        self._idle_s = idle_s
        self._stall_s = stall_s
        self._quiet_since = 0.0  # the client's last audio, or the end of the last utterance if that is later
        self._heard_at = 0.0  # the engine's last event, or the commit that it works on if that is later
        self._is_finishing = False

    def client_spoke(self, now: float) -> None:
        self._quiet_since = now

    def engine_spoke(self, now: float) -> None:
        self._heard_at = now

    def note(self, now: float, *, is_finishing: bool, has_ended: bool) -> None:
        """After an event of either side. ``is_finishing``: the client has said all and the engine is not
        done; ``has_ended``: the event was the end of an utterance."""
        was_finishing, self._is_finishing = self._is_finishing, is_finishing
        if is_finishing and not was_finishing:
            self._heard_at = now
        if has_ended or (was_finishing and not is_finishing):
            self._quiet_since = now

    def left_s(self, now: float) -> float:
        """Until it is time to look again. Raises: SessionTimeout, UpstreamFailed: it was too long already."""
        if self._is_finishing:
            return min(self._idle_s, self.stall_left_s(now))
        left_s = self._quiet_since + self._idle_s - now
        if left_s <= 0:
            raise SessionTimeout(
                f"No audio came for {self._idle_s:g} s (realtime.idle_timeout_s).", code="idle_timeout"
            )
        return left_s

    def stall_left_s(self, now: float) -> float:
        """Raises: UpstreamFailed: the engine has said nothing for too long in the middle of its work."""
        left_s = self._heard_at + self._stall_s - now
        if left_s <= 0:
            raise UpstreamFailed(
                f"The engine said nothing for {self._stall_s:g} s before it was done "
                "(limits.between_tokens_timeout_s).",
                code="upstream_stalled",
            )
        return left_s
