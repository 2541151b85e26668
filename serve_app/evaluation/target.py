"""What is evaluated: a model at an endpoint, with settings and perhaps a version of a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from serve_app.evaluation.answer import Answer
from serve_app.evaluation.case import Case

BASELINE, CANDIDATE = "baseline", "candidate"
GREEDY: Mapping[str, Any] = {"temperature": 0}
"""Settings of a request whose case and target say nothing else: answers vary least."""

MILLION = 1e6


class TargetError(ValueError):
    """A target cannot be asked; the message names the option or the case."""


@dataclass(frozen=True, slots=True)
class Target:
    """``key_variable``: the environment variable that holds the key. ``prompt``: ``id`` or ``id@version``; a
    label is a version, too. Prices: of a million tokens, in any one currency; ``None``: unknown."""

    role: str
    model: str
    url: str
    key_variable: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    prompt: str | None = None
    price_in: float | None = None
    price_out: float | None = None

    def __post_init__(self) -> None:
        """Raises: TargetError: the URL."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise TargetError(f"--{self.role}-url {self.url!r}: expected http://host:port or https://host")
        if parts.username is not None or parts.password is not None:
            raise TargetError(
                f"--{self.role}-url: no user or password in a URL; name a variable with --{self.role}-key-env"
            )

    @property
    def label(self) -> str:
        """Name in reports: the model, with the prompt and the settings that are its own."""
        own = [f"prompt {self.prompt}"] if self.prompt else []
        own += [f"{name}={value}" for name, value in self.settings.items()]
        return self.model + (f" ({', '.join(own)})" if own else "")

    @property
    def endpoint(self) -> str:
        return self.url.rstrip("/").removesuffix("/v1") + "/v1/chat/completions"

    def body(self, case: Case) -> dict[str, Any]:
        """The request.

        Raises:
            TargetError: the case has no messages, and the target has no prompt.
        """
        body: dict[str, Any] = {"model": self.model, **GREEDY, **case.settings, **self.settings}
        if self.prompt is not None:
            name, _, version = self.prompt.partition("@")
            body["prompt"] = {
                "id": name,
                **({"version": version} if version else {}),
                "variables": dict(case.variables),
            }
        elif not case.messages:
            raise TargetError(
                f"{case.origin or case.id}: case {case.id!r} has no messages; give --{self.role}-prompt"
            )
        if case.messages or self.prompt is None:
            body["messages"] = [dict(message) for message in case.messages]
        return {**body, "stream": True, "stream_options": {"include_usage": True}}

    def cost(self, answer: Answer) -> float | None:
        """Cost of one answer, in the currency of the prices."""
        if self.price_in is None or self.price_out is None:
            return None
        return (answer.prompt_tokens * self.price_in + answer.output_tokens * self.price_out) / MILLION


def check_bodies(targets: Sequence[Target], cases: Sequence[Case]) -> None:
    """Raises: TargetError: a target cannot be asked a case. Before the first request is sent."""
    for target in targets:
        for case in cases:
            target.body(case)
