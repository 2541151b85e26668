"""The judge model and the embedder that some scorers ask."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from deployments.evaluation.client import headers_of
from serve_app.evaluation.scorers.base import ScoreError
from serve_app.evaluation.stream import said

ATTEMPTS = 3
PAUSE_S = 0.5
"""Before the second attempt; twice as long before the third."""

WORTH_ANOTHER = frozenset({408, 409, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a judge or an embedder is asked. ``option`` begins its command line options: ``--judge``."""

    option: str
    model: str
    url: str
    key_variable: str | None = None


class HttpServices:
    """Implements ``serve_app.evaluation.scorers.base.Services``."""

    def __init__(
        self, http: aiohttp.ClientSession, judge: Place | None, embedder: Place | None, limit_s: float
    ) -> None:
        """Raises: TargetError: a variable with a key is not set."""
        self._http = http
        self._judge = judge
        self._embedder = embedder
        self._limit_s = limit_s
        self._headers = {
            place.option: headers_of(f"{place.option}-key-env", place.key_variable)
            for place in (judge, embedder)
            if place is not None
        }

    async def ask_judge(self, messages: Sequence[Mapping[str, Any]]) -> str:
        if self._judge is None:
            raise ScoreError("there is no judge: name its model with --judge-model")
        body = {"model": self._judge.model, "messages": list(messages), "temperature": 0}
        document = await self._asked(self._judge, "/v1/chat/completions", body)
        try:
            return str(document["choices"][0]["message"]["content"] or "")
        except (KeyError, IndexError, TypeError):
            raise ScoreError(f"the judge at {self._judge.url} gives no chat completion") from None

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        if self._embedder is None:
            raise ScoreError("there is no embedder: name its model with --embedder-model")
        body = {"model": self._embedder.model, "input": list(texts)}
        document = await self._asked(self._embedder, "/v1/embeddings", body)
        try:
            found = [[float(value) for value in item["embedding"]] for item in document["data"]]
        except (KeyError, TypeError, ValueError):
            raise ScoreError(f"the embedder at {self._embedder.url} gives no embeddings") from None
        if len(found) != len(texts):
            raise ScoreError(f"the embedder at {self._embedder.url} gives {len(found)} of {len(texts)}")
        return found

    async def _asked(self, place: Place, path: str, body: Mapping[str, Any]) -> Any:
        """Raises: ScoreError: after the last attempt."""
        url = place.url.rstrip("/").removesuffix("/v1") + path
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with asyncio.timeout(self._limit_s):
                    status, document = await self._once(url, body, self._headers[place.option])
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                status, why = 0, str(error) or type(error).__name__
            else:
                if status == 200:
                    return document
                why = f"status {status}: {said(document)}"
            if attempt == ATTEMPTS or (status and status not in WORTH_ANOTHER):
                break
            await asyncio.sleep(PAUSE_S * attempt)
        raise ScoreError(f"{place.option[2:]} {place.model} at {place.url} does not answer: {why}")

    async def _once(self, url: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> tuple[int, Any]:
        async with self._http.post(url, json=body, headers=headers) as response:
            return response.status, await response.json(content_type=None)
