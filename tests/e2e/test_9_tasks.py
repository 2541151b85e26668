"""Managed engines whose models do not chat: vectors and recordings, through the whole graph."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from support.server import Server, ServerSlot, get_json, launched
from support.tiny_llama import CPU_ENGINE, ONE_CORE
from support.tiny_whisper import recording, write_tiny_whisper
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from serve_app.model_store import ModelStore

pytestmark = pytest.mark.skipif(
    "PROMPTLY_TEST_LONG" not in os.environ,
    reason="takes two minutes, for two engines that start: set PROMPTLY_TEST_LONG=1",
)

VECTORS, WHISPER = "minilm", "whisper"
WEIGHTS = "sentence-transformers/all-MiniLM-L6-v2"
QUERY, NEAR, FAR = "How do I bake bread?", "Baking a loaf of bread at home", "The tax law of 1983"


@pytest.fixture(scope="module")
def served(
    slot: ServerSlot, prepared_models: ModelStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("tasks")
    engine = CPU_ENGINE | {"env": ONE_CORE, "max_num_seqs": 4}
    vectors = engine | {"max_model_len": 256, "options": {"runner": "pooling"}}
    sources = {VECTORS: str(prepared_models.folder(WEIGHTS)), WHISPER: str(write_tiny_whisper(folder / "w"))}
    engines = {VECTORS: vectors, WHISPER: engine | {"max_model_len": 448}}
    models = [
        {"id": name, "source": sources[name], "engine": engines[name], "drain_timeout_s": 1}
        for name in engines
    ]
    yield slot.start(launched(folder, folder / "store", models=models, cache=None, embedder=None))
    slot.stop()


@pytest.fixture
def client(served: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


def post(server: Server, path: str, **fields: Any) -> Any:
    with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=60) as client:
        return client.post(path, body={"model": VECTORS, **fields}, cast_to=object)


def test_an_embedding_model_answers_every_path_of_its_task(served: Server, client: openai.OpenAI) -> None:
    made = client.embeddings.create(model=VECTORS, input=[QUERY, NEAR])
    assert [len(each.embedding) for each in made.data] == [384, 384]
    ranked = post(served, "/rerank", query=QUERY, documents=[FAR, NEAR], top_n=1)
    assert [result["index"] for result in ranked["results"]] == [1]
    scored = post(served, "/score", text_1=QUERY, text_2=[FAR, NEAR])
    assert scored["data"][0]["score"] < scored["data"][1]["score"]
    assert len(post(served, "/v2/embed", texts=[QUERY])["embeddings"]["float"][0]) == 384
    assert len(post(served, "/pooling", input=[QUERY, NEAR])["data"]) == 2
    tokens = post(served, "/v1/tokenize", prompt=QUERY)["tokens"]
    assert "bread" in post(served, "/detokenize", tokens=tokens)["prompt"]


@pytest.mark.parametrize("rate", [16_000, 44_100])
def test_a_recording_is_transcribed(client: openai.OpenAI, rate: int) -> None:
    upload = ("a.wav", recording(1.5, rate))
    answer = client.audio.transcriptions.create(model=WHISPER, file=upload, language="en", temperature=0)
    assert isinstance(answer.text, str)
    assert answer.usage is not None
    assert answer.usage.type == "duration"
    assert answer.usage.seconds == 2


def test_a_path_of_another_task_is_refused_with_the_task(served: Server, client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match=r"its task is .*embed.*/v1/embeddings"):
        client.chat.completions.create(model=VECTORS, messages=[{"role": "user", "content": "hi"}])
    with pytest.raises(openai.NotFoundError, match="does not answer POST /classify"):
        post(served, "/classify", input="hi")
    with pytest.raises(openai.NotFoundError, match=r"its task is .*transcription"):
        client.chat.completions.create(model=WHISPER, messages=[{"role": "user", "content": "hi"}])
    address = f"{served.url.replace('http', 'ws', 1)}/v1/realtime?model={WHISPER}"
    with pytest.raises(InvalidStatus) as refused, connect(address, proxy=None):
        pass
    assert refused.value.response.status_code == 404
    assert b"No model here does" in refused.value.response.body
    fleet = get_json(f"{served.url}/admin/fleet")
    assert [fleet[name][0]["state"] for name in (VECTORS, WHISPER)] == ["ready", "ready"]
