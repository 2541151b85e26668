"""How requests are split into items, and answers are put together from known and new ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serve_app.items.keys import item_keys
from serve_app.items.registry import SHAPES
from serve_app.items.shape import Shape

EMBEDDINGS, RERANK, SCORE, COHERE = (
    SHAPES[path] for path in ("/v1/embeddings", "/v1/rerank", "/v1/score", "/v2/embed")
)


def keys(shape: Shape, fields: dict[str, Any], **changed: Any) -> tuple[bytes, ...] | None:
    split = shape.split({"model": "m", **fields})
    assert split is not None
    who = {"tenant": "a", "model": "m", "fingerprint": "f", "by": {}} | changed
    return item_keys(shape, split, **who)


def answer(field: str, *items: dict[str, Any], **head: Any) -> bytes:
    return json.dumps(
        {"id": "x", **head, field: [{"index": n, **item} for n, item in enumerate(items)]}
    ).encode()


@pytest.mark.parametrize(
    ("given", "count"),
    [("a", 1), (["a", "b"], 2), ([1, 2, 3], 1), ([[1, 2], [3]], 2), ([{"role": "user", "content": "x"}], 1)],
)
def test_an_input_has_as_many_items_as_the_engine_sees(given: Any, count: int) -> None:
    split = EMBEDDINGS.split({"model": "m", "input": given})
    assert split is not None
    assert len(split.items) == count


@pytest.mark.parametrize(
    "fields",
    [
        {"input": []},
        {"input": ["a", 1]},
        {"input": "a", "messages": [{"role": "user", "content": "x"}]},
        {"input": "a", "encoding_format": "bytes"},
        {"input": {"a": 1}},
        {},
    ],
)
def test_what_cannot_be_told_apart_is_left_to_the_engine(fields: dict[str, Any]) -> None:
    assert EMBEDDINGS.split(fields) is None


def test_an_item_is_known_by_its_text_and_by_all_that_shapes_it() -> None:
    one = keys(EMBEDDINGS, {"input": ["a", "b"]})
    assert one is not None
    assert len(set(one)) == 2
    assert keys(EMBEDDINGS, {"input": "b"}) == (one[1],)
    assert keys(EMBEDDINGS, {"input": ["b"], "user": "u", "priority": 3}) == (one[1],)
    for other in (
        keys(EMBEDDINGS, {"input": "b", "dimensions": 64}),
        keys(EMBEDDINGS, {"input": "b"}, tenant="b"),
        keys(EMBEDDINGS, {"input": "b"}, fingerprint="g"),
        keys(EMBEDDINGS, {"input": "b"}, model="adapter"),
        keys(EMBEDDINGS, {"input": "b"}, by={"user": "u"}),
        keys(SHAPES["/pooling"], {"input": "b"}),
    ):
        assert other is not None
        assert other[0] not in one


def test_media_behind_an_address_are_not_known_by_it() -> None:
    def image(url: str) -> dict[str, Any]:
        part = {"type": "image_url", "image_url": {"url": url}}
        return {"messages": [{"role": "user", "content": [part]}]}

    assert keys(EMBEDDINGS, image("https://host/x.png")) is None
    assert keys(EMBEDDINGS, image("data:image/png;base64,AA==")) is not None
    assert keys(COHERE, {"images": ["https://host/x.png"]}) is None
    assert keys(COHERE, {"images": ["data:image/png;base64,AA=="]}) is not None
    assert keys(EMBEDDINGS, {"input": '{"url":"https://host/x.png"}'}) is not None, "a text about one"


def test_the_engine_is_asked_for_what_is_missing_and_its_answer_goes_into_its_place() -> None:
    fields = {"model": "m", "input": ["a", "b", "c"], "dimensions": 2}
    assert EMBEDDINGS.only(fields, [0, 2]) == fields | {"input": ["a", "c"]}
    vectors = [{"object": "embedding", "embedding": [number, 0.5]} for number in (1, 3)]
    found = EMBEDDINGS.read(answer("data", *vectors, usage={"prompt_tokens": 2}), 2)
    assert found is not None
    known = b'{"object":"embedding","embedding":[2,0.5]}'
    whole = json.loads(EMBEDDINGS.write(fields, found.head, [found.values[0], known, found.values[1]]))
    assert [(item["index"], item["embedding"][0]) for item in whole["data"]] == [(0, 1), (1, 2), (2, 3)]
    assert whole["usage"] == {"prompt_tokens": 2}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"data":{}}',
        b'{"data":[{"index":0}]}',
        b'{"data":[{"embedding":1}]}',
        answer("data", {"a": 1}),
        answer("data", {"a": 1}, {"a": 1}, {"a": 1}),
        b'{"data":[{"index":0,"a":1},{"index":0,"a":1}]}',
        b'{"data":[{"index":0,"a":1},{"index":9,"a":1}]}',
    ],
)
def test_an_answer_in_another_form_is_not_read(body: bytes) -> None:
    assert EMBEDDINGS.read(body, 2) is None


def test_a_reranked_answer_is_sorted_over_known_and_new_documents() -> None:
    fields = {"model": "m", "query": "q", "documents": ["a", "b", "c"], "top_n": 2}
    assert "top_n" not in RERANK.only(fields, [1]), "the others must be known afterwards"
    scored = [
        {"relevance_score": score, "document": {"text": text}} for text, score in (("a", 0.1), ("b", 0.9))
    ]
    found = RERANK.read(answer("results", *scored), 2)
    assert found is not None
    known = b'{"relevance_score":0.5,"document":{"text":"c"}}'
    whole = json.loads(RERANK.write(fields, found.head, [*found.values, known]))
    assert [(item["index"], item["document"]["text"]) for item in whole["results"]] == [(1, "b"), (2, "c")]
    assert keys(RERANK, fields) == keys(RERANK, fields | {"top_n": 1})


@pytest.mark.parametrize("names", [("queries", "documents"), ("queries", "items"), ("text_1", "text_2")])
def test_one_text_is_scored_with_each_of_several(names: tuple[str, str]) -> None:
    first, second = names
    fields = {"model": "m", first: "q", second: ["a", "b"]}
    pairs = keys(SCORE, fields)
    assert pairs == keys(SCORE, {first: ["q", "q"], second: ["a", "b"]})
    assert SCORE.only(fields, [1]) == {"model": "m", first: ["q"], second: ["b"]}


def test_texts_that_are_not_as_many_are_left_to_the_engine() -> None:
    assert SCORE.split({"text_1": ["a", "b"], "text_2": ["c"]}) is None
    assert SCORE.split({"text_1": "a", "text_2": ["c"], "queries": "a", "items": "b"}) is None


def test_vectors_of_several_types_stay_together() -> None:
    fields = {"model": "m", "texts": ["a", "b"], "embedding_types": ["float", "binary"]}
    body = {"id": "x", "embeddings": {"float": [[1.0], [2.0]], "binary": [[1], [2]]}, "texts": ["a", "b"]}
    found = COHERE.read(json.dumps(body).encode(), 2)
    assert found is not None
    whole = json.loads(COHERE.write(fields, found.head, [found.values[1], found.values[0]]))
    assert whole["embeddings"] == {"float": [[2.0], [1.0]], "binary": [[2], [1]]}
    assert whole["texts"] == ["a", "b"]


@pytest.mark.parametrize("wrong", [[], {}, 1, None])
def test_a_format_of_any_type_is_left_to_the_engine_to_refuse(wrong: Any) -> None:
    assert EMBEDDINGS.split({"model": "m", "input": "a", "encoding_format": wrong}) is not None
    assert EMBEDDINGS.split({"model": "m", "input": "a", "encoding_format": "bytes"}) is None


@pytest.mark.parametrize("top_n", [2, 2.0, "2"])
def test_a_rerank_takes_the_counts_that_vllm_takes(top_n: int | float | str) -> None:
    fields = {"model": "m", "query": "q", "documents": ["a", "b", "c"], "top_n": top_n}
    assert RERANK.split(fields) is not None
    values = [b'{"relevance_score":%.1f}' % score for score in (0.1, 0.3, 0.2)]
    results = json.loads(RERANK.write(fields, {}, values))["results"]
    assert [each["index"] for each in results] == [1, 2]


@pytest.mark.parametrize("top_n", [-1, 2.5, "two", "-1", True, [2], "9" * 5000])
def test_the_engine_says_what_is_wrong_with_another_count(top_n: object) -> None:
    assert RERANK.split({"model": "m", "query": "q", "documents": ["a"], "top_n": top_n}) is None


def test_the_text_that_is_read_with_each_item_is_told_apart() -> None:
    split = RERANK.split({"model": "m", "query": 'q"[,', "documents": ["a", {"text": "b"}]})
    assert split is not None
    assert split.first == b'"q\\"[,"'
    assert [*split.texts([0, 1])] == [b'"a"]', b'{"text":"b"}]']
    alone = SCORE.split({"model": "m", "text_1": ["a", "b"], "text_2": ["c", "d"]})
    assert alone is not None
    assert alone.first is None
    assert [*alone.texts([1])] == [b'["b","d"]']
