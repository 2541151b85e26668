"""Sessions that repeat themselves: an agent that sends the same last message again and again."""

from __future__ import annotations

from collections import OrderedDict, deque

from serve_app.openai.requests import ChatRequest, CompletionRequest

MOST_SESSIONS = 4096
"""Sessions that are remembered; the one that was silent for the longest time is forgotten first."""


END_CHARACTERS = 4096
"""So much of the end of a text completion's prompt, which has no messages, counts as the last message."""


def mark_of(session: str, asked: ChatRequest | CompletionRequest) -> int | None:
    """The same for the same last message of a session; ``None`` where it has no text. Python has another key
    for its hashes in each process, so the number reveals no text."""
    if isinstance(asked, CompletionRequest):
        text = asked.prompt[-END_CHARACTERS:] if isinstance(asked.prompt, str) else ""
    else:
        content = asked.messages[-1].content
        text = content if isinstance(content, str) else "".join(map(_text, content or ()))
    return hash((session, text)) if text else None


def _text(part: dict[str, object]) -> str:
    text = part.get("text")
    return text if isinstance(text, str) else ""


class LoopWatch:
    """``requests`` with the same mark within ``within_s`` are a loop."""

    def __init__(self, requests: int, within_s: float, most_sessions: int = MOST_SESSIONS) -> None:
        self._requests = requests
        self._within_s = within_s
        self._most = most_sessions
        self._seen: OrderedDict[str, tuple[int, deque[float]]] = OrderedDict()

    def saw(self, session: str, mark: int, now: float) -> bool:
        """A session's request, with the mark of its last message. Whether this one makes it a loop; the next
        that does so needs as many requests again."""
        known = self._seen.pop(session, None)
        if known is None or known[0] != mark:
            known = (mark, deque(maxlen=self._requests))
        self._seen[session] = known
        if len(self._seen) > self._most:
            self._seen.popitem(last=False)
        times = known[1]
        times.append(now)
        if len(times) < self._requests or now - times[0] > self._within_s:
            return False
        times.clear()
        return True
