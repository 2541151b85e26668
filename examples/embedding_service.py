"""A small search service: it keeps texts with their vectors, and finds the nearest ones.

    python examples/embedding_service.py --port 8800 &      # wait until it says where it listens
    curl http://127.0.0.1:8800/texts -d '{"texts": ["Paris is in France.", "Cats purr."]}'
    curl 'http://127.0.0.1:8800/search?q=a+city+in+Europe'

The vectors come from the endpoint's embedder, which works on the texts of many requests at once, and cuts a
long one to what it reads. It needs `pip install openai`; the endpoint is PROMPTLY_URL (default:
http://127.0.0.1:8000), the key PROMPTLY_API_KEY. It listens on loopback, keeps everything in memory, and is
meant to be changed.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from openai import OpenAI, OpenAIError

FOUND = 3
MOST_BYTES = 1_000_000
CUT = {"truncate_prompt_tokens": -1}
"""Not refused where it is longer than the embedder reads."""


class Texts:
    """Texts with their vectors."""

    def __init__(self, client: OpenAI, embedder: str) -> None:
        self._client = client
        self._embedder = embedder
        self._kept: list[tuple[str, list[float]]] = []
        self._lock = threading.Lock()

    def add(self, texts: list[str]) -> int:
        """Returns how many there are."""
        vectors = self._vectors(texts)
        with self._lock:
            self._kept += zip(texts, vectors, strict=True)
            return len(self._kept)

    def nearest(self, question: str) -> list[dict[str, Any]]:
        (asked,) = self._vectors([question])
        with self._lock:
            kept = list(self._kept)
        scored = [(sum(a * b for a, b in zip(asked, vector, strict=True)), text) for text, vector in kept]
        return [
            {"score": round(score, 4), "text": text} for score, text in sorted(scored, reverse=True)[:FOUND]
        ]

    def _vectors(self, texts: list[str]) -> list[list[float]]:
        answered = self._client.embeddings.create(model=self._embedder, input=texts, extra_body=CUT)
        return [each.embedding for each in answered.data]


def handler_of(texts: Texts) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            try:
                given = json.loads(self.rfile.read(min(length, MOST_BYTES)))["texts"]
                if not given or not all(isinstance(text, str) and text for text in given):
                    raise ValueError("no text")
            except (ValueError, KeyError, TypeError):
                return self.answer(400, {"error": 'expected {"texts": ["…"]}'})
            return self.asked(lambda: {"texts": texts.add(given)})

        def do_GET(self) -> None:
            question = parse_qs(urlsplit(self.path).query).get("q")
            if not question:
                return self.answer(400, {"error": "expected /search?q=…"})
            return self.asked(lambda: {"found": texts.nearest(question[0])})

        def asked(self, work: Any) -> None:
            try:
                self.answer(200, work())
            except OpenAIError as error:
                self.answer(502, {"error": str(error)})

        def answer(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Texts are not logged."""

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=8800, help="0: any (default: %(default)s)")
    parser.add_argument("--embedder", help="default: the last model that the endpoint lists")
    options = parser.parse_args()

    url = os.environ.get("PROMPTLY_URL", "http://127.0.0.1:8000")
    client = OpenAI(base_url=f"{url}/v1", api_key=os.environ.get("PROMPTLY_API_KEY", "none"))
    embedder = options.embedder or [model.id for model in client.models.list()][-1]
    server = ThreadingHTTPServer(("127.0.0.1", options.port), handler_of(Texts(client, embedder)))
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
