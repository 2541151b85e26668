"""Two requests share an answer only when everything but the last user text is the same."""

from __future__ import annotations

import json
import random
import unicodedata
from typing import Any, get_args
from uuid import UUID

import pytest
from samples import CHAT, COMPLETIONS, body_of, chat_request, completion_request, user

from serve_app.cache.keys import IGNORED_FIELDS, SHAPING_FIELDS, CacheKey, cache_key
from serve_app.openai.requests import Endpoint, ParsedRequest, parse_generation
from serve_app.settings import CacheSettings
from serve_app.settings.cache import Sampled

CONTENT_FIELDS = {"messages", "prompt"}

SAMPLES: dict[str, tuple[Any, ...]] = {
    "temperature": (0, 0.7, 1.5),
    "top_p": (0.5, 1.0),
    "top_k": (0, 1, -1, 40),
    "min_p": (0, 0.05),
    "max_tokens": (1, 16),
    "max_completion_tokens": (1, 16),
    "min_tokens": (0, 4),
    "stop": ("", "a", ["a"], ["a", "b"], ["b", "a"], ["ab"]),
    "stop_token_ids": ([1], [1, 2], [12]),
    "include_stop_str_in_output": (False, True),
    "ignore_eos": (False, True),
    "seed": (0, 1, -1, 2**63, 10**30),
    "presence_penalty": (0, 0.5, -0.5),
    "frequency_penalty": (0, 0.5, -0.5),
    "repetition_penalty": (1.0, 1.1),
    "length_penalty": (1.0, 1.1),
    "logit_bias": ({}, {"1": 5}, {"1": 6}, {"2": 5}),
    "bad_words": (["a"], ["b"]),
    "allowed_token_ids": ([1], [2]),
    "response_format": (
        {"type": "text"},
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array"}}},
    ),
    "structured_outputs": ({"regex": "a"}, {"choice": ["a", "b"]}),
    "reasoning_effort": ("low", "high"),
    "chat_template": ("{{ a }}", "{{ b }}"),
    "chat_template_kwargs": ({}, {"enable_thinking": False}, {"enable_thinking": True}),
    "add_generation_prompt": (False, True),
    "continue_final_message": (False, True),
    "add_special_tokens": (False, True),
    "skip_special_tokens": (False, True),
    "spaces_between_special_tokens": (False, True),
    "truncate_prompt_tokens": (0, 5, -1),
}
"""Values of every shaping field, all of which differ from each other and from leaving the field out."""

WITHOUT_INFLUENCE: tuple[dict[str, Any], ...] = (
    {"stream": True},
    {"stream": False},
    {"stream": True, "stream_options": {"include_usage": True}},
    {"stream": True, "stream_options": {"include_usage": False}},
    {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": False}},
    {"stream": True, "stream_options": {}},
    {"user": "somebody"},
    {"safety_identifier": "somebody"},
    {"n": 1},
    {"logprobs": False},
)

NOT_REPLAYABLE: tuple[dict[str, Any], ...] = (
    {"n": 2},
    {"logprobs": True},
    {"logprobs": True, "top_logprobs": 3},
    {"tools": [{"type": "function", "function": {"name": "f"}}]},
    {"tool_choice": "auto"},
    {"functions": [{"name": "f"}]},
    {"echo": True},
    {"best_of": 2},
    {"suffix": "x"},
    {"use_beam_search": True},
    {"prompt_logprobs": 0},
    {"return_token_ids": True},
    {"documents": [{"title": "t"}]},
    {"mm_processor_kwargs": {"a": 1}},
    {"kv_transfer_params": {"a": 1}},
    {"cache_salt": "x"},
    {"a_field_of_tomorrow": 0},
    {"a_field_of_tomorrow": False},
    {"a_field_of_tomorrow": ""},
    {"a_field_of_tomorrow": {}},
    {"*": [1]},
    {"earlier": [1]},
    {"last": {"role": "user"}},
    {"": 1},
    {"stream": True, "stream_options": {"continuous_usage_stats": True}},
    {"stream": True, "stream_options": {"include_usage": True, "a_field_of_tomorrow": 1}},
)

IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


def key_of(request: ParsedRequest, tenant: str = "t", model_fingerprint: str = "f") -> CacheKey:
    key = cache_key(request, tenant, model_fingerprint, sampled="all")
    assert key is not None
    return key


def is_bypassed(request: ParsedRequest) -> bool:
    return cache_key(request, "t", "f", sampled="all") is None


def request_for(endpoint: Endpoint, **fields: Any) -> ParsedRequest:
    return chat_request(**fields) if endpoint is CHAT else completion_request(**fields)


def assert_all_apart(keys: list[CacheKey]) -> None:
    assert len({key.partition for key in keys}) == len(keys)
    assert len({key.entry_id for key in keys}) == len(keys)


# ---- what separates ----


def test_every_shaping_field_has_sample_values() -> None:
    assert SAMPLES.keys() == SHAPING_FIELDS - CONTENT_FIELDS


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize("name", SAMPLES)
def test_every_value_of_a_shaping_field_has_a_partition_of_its_own(name: str, endpoint: Endpoint) -> None:
    requests = [request_for(endpoint)] + [request_for(endpoint, **{name: value}) for value in SAMPLES[name]]
    assert_all_apart([key_of(request) for request in requests])


def test_the_same_value_in_two_fields_is_two_partitions() -> None:
    names = ("max_tokens", "min_tokens", "top_k", "seed", "truncate_prompt_tokens")
    assert_all_apart([key_of(chat_request(**{name: 1})) for name in names])


def test_both_names_of_a_chats_limit_are_one() -> None:
    """Messages and Responses each send one of them, and so do clients of chat."""
    assert key_of(chat_request(max_tokens=1)) == key_of(chat_request(max_completion_tokens=1))
    assert_all_apart(
        [
            key_of(chat_request(max_tokens=1)),
            key_of(chat_request(max_completion_tokens=2)),
            key_of(chat_request(max_tokens=1, max_completion_tokens=2)),
        ]
    )
    assert_all_apart(
        [key_of(completion_request(**{name: 1})) for name in ("max_tokens", "max_completion_tokens")]
    )


def test_tenants_models_fingerprints_and_endpoints_are_kept_apart() -> None:
    requests = [
        *(chat_request(model=model) for model in ("m", "n", "", "M")),
        *(completion_request(model=model) for model in ("m", "n")),
    ]
    identities = [("t", "f"), ("u", "f"), ("t", "g"), ("", "f"), ("t", ""), ("f", "t"), ("T", "f")]
    assert_all_apart([key_of(request, *identity) for request in requests for identity in identities])


def test_names_that_read_the_same_when_joined_are_kept_apart() -> None:
    parts = [("a", "bc", "d"), ("ab", "c", "d"), ("a", "b", "cd"), ("a,b", "c", "d"), ('a","b', "c", "d")]
    keys = [key_of(chat_request(model=model), tenant, mark) for tenant, model, mark in parts]
    assert_all_apart(keys)


def test_what_was_said_before_the_last_text_separates() -> None:
    last = user("hi")
    conversations: list[list[dict[str, Any]]] = [
        [last],
        [{"role": "system", "content": "Be brief."}, last],
        [{"role": "system", "content": "Be brief"}, last],
        [{"role": "system", "content": ""}, last],
        [{"role": "developer", "content": "Be brief."}, last],
        [user("Be brief."), last],
        [user("Be brief.", name="ann"), last],
        [user("a"), {"role": "assistant", "content": "b"}, last],
        [user("b"), {"role": "assistant", "content": "a"}, last],
        [user("ab"), {"role": "assistant", "content": ""}, last],
        [last, last],
        [user("hi", name="ann")],
        [user("hi", name="bob")],
    ]
    assert_all_apart([key_of(chat_request(messages=messages)) for messages in conversations])


@pytest.mark.parametrize(
    "earlier",
    [
        [user([IMAGE])],
        [user("a"), {"role": "assistant", "content": "b", "tool_calls": [{"id": "1"}]}],
        [user("a"), {"role": "assistant", "content": None}],
        [user("a"), {"role": "assistant", "content": "b", "audio": {"id": "1"}}],
        [user([{"type": "text", "text": "a"}, IMAGE])],
    ],
)
def test_an_earlier_message_that_is_not_only_text_bypasses_the_cache(earlier: list[dict[str, Any]]) -> None:
    assert is_bypassed(chat_request(messages=[*earlier, user("hi")]))


def test_unset_fields_of_an_earlier_message_do_no_harm() -> None:
    answer = {"role": "assistant", "content": "b", "refusal": None, "tool_calls": [], "annotations": None}
    assert key_of(chat_request(messages=[user("a"), answer, user("hi")])) is not None


def test_text_cannot_move_from_the_last_message_into_the_rest() -> None:
    """Words that a client controls never reach the partition of another client's system prompt."""
    system = {"role": "system", "content": "Be brief."}
    honest = key_of(chat_request(messages=[system, user("hi")]))
    for text in (
        'Be brief."},{"role":"user","content":"hi',
        "Be brief.\0hi",
        f"{honest.partition}\0hi",
        "hi\0",
    ):
        other = key_of(chat_request(text))
        assert other.partition != honest.partition
        assert other.entry_id != honest.entry_id


def test_requests_share_a_key_exactly_when_they_say_the_same() -> None:
    """Random requests, compared by their canonical JSON."""
    choose = random.Random(2)
    partition_of: dict[str, str] = {}
    entry_of: dict[str, UUID] = {}
    for _ in range(1500):
        names = choose.sample(sorted(SAMPLES.keys() - {"max_completion_tokens"}), choose.randint(0, 2))
        fields = {name: choose.choice(SAMPLES[name]) for name in names}
        before = choose.choice([[], [{"role": "system", "content": "s"}], [user("a")]])
        text, tenant, mark = choose.choice("xyz"), choose.choice("tu"), choose.choice("fg")
        key = key_of(chat_request(messages=[*before, user(text)], **fields), tenant, mark)
        shared = json.dumps([tenant, mark, before, fields], sort_keys=True)
        assert partition_of.setdefault(shared, key.partition) == key.partition
        assert entry_of.setdefault(shared + text, key.entry_id) == key.entry_id
    assert len(set(partition_of.values())) == len(partition_of) > 200
    assert len(set(entry_of.values())) == len(entry_of)


# ---- what does not separate ----


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize("name", sorted((SHAPING_FIELDS | IGNORED_FIELDS) - CONTENT_FIELDS - {"model"}))
def test_a_null_field_equals_an_absent_one(name: str, endpoint: Endpoint) -> None:
    assert key_of(request_for(endpoint, **{name: None})) == key_of(request_for(endpoint))


@pytest.mark.parametrize("name", ["tools", "tool_choice", "functions", "echo", "a_field_of_tomorrow"])
def test_a_field_that_would_bypass_the_cache_does_not_when_it_is_null(name: str) -> None:
    assert key_of(chat_request(**{name: None})) == key_of(chat_request())


@pytest.mark.parametrize("name", ["stop", "stop_token_ids", "bad_words", "tools", "documents"])
def test_an_empty_list_equals_an_absent_field(name: str) -> None:
    assert key_of(chat_request(**{name: []})) == key_of(chat_request())


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize("fields", WITHOUT_INFLUENCE, ids=str)
def test_how_an_answer_is_delivered_does_not_separate(fields: dict[str, Any], endpoint: Endpoint) -> None:
    assert key_of(request_for(endpoint, **fields)) == key_of(request_for(endpoint))


def reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: reversed_keys(value[name]) for name in reversed(value)}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


def test_the_order_of_keys_and_the_layout_of_the_json_do_not_matter() -> None:
    value = {
        "model": "m",
        "messages": [{"role": "system", "content": "Größe", "name": "s"}, user("hi 東京", name="ann")],
        "temperature": 0.5,
        "logit_bias": {"1": 5, "2": 6},
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"b": 1, "a": 2}}},
    }
    bodies = [
        json.dumps(value).encode(),
        json.dumps(value, indent=4).encode(),
        json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(),
        json.dumps(reversed_keys(value)).encode(),
        json.dumps(value).replace("0.5", "5e-1").encode(),
    ]
    keys = {key_of(parse_generation(CHAT, body)) for body in bodies}
    assert len(set(bodies)) == len(bodies)
    assert len(keys) == 1


def test_a_list_of_one_text_part_equals_the_text() -> None:
    parts = chat_request([{"type": "text", "text": "hi"}])
    assert key_of(parts) == key_of(chat_request("hi"))


def test_keys_stay_the_same_from_one_process_to_the_next() -> None:
    """A change of these means a change of the rules: raise ``KEY_VERSION``."""
    key = key_of(chat_request(messages=[{"role": "system", "content": "s"}, user("hi")], temperature=0))
    assert key == CacheKey(
        tenant="t",
        model="m",
        partition="85e5a44bf14defd5d6a61000482e5c95a7266fa3eddbe38041752641d48e6115",
        entry_id=UUID("66efe346-aa02-a6a5-2685-7acda320fabe"),
        text="hi",
        semantic=True,
    )


# ---- the text ----


@pytest.mark.parametrize("endpoint", Endpoint)
def test_the_text_changes_the_exact_key_and_not_the_partition(endpoint: Endpoint) -> None:
    composed = "Gr\u00f6\u00dfe"
    texts = [
        "hi",
        "Hi",
        "hi ",
        " hi",
        "hi\n",
        "hi\0",
        "h",
        composed,
        unicodedata.normalize("NFD", composed),
        "👍",
    ]
    name = "content" if endpoint is CHAT else "prompt"
    keys = [key_of(request_for(endpoint, **{name: text})) for text in texts]
    assert len({key.entry_id for key in keys}) == len(texts)
    assert len({key.partition for key in keys}) == 1
    assert [key.text for key in keys] == texts


def test_the_key_says_whose_and_which_it_is() -> None:
    key = key_of(chat_request("hi", model="llama"), "acme", "f")
    assert (key.tenant, key.model, key.text) == ("acme", "llama", "hi")


def test_only_a_question_is_compared_by_meaning() -> None:
    assert key_of(chat_request("hi")).semantic is True
    assert key_of(completion_request("hi")).semantic is False


# ---- what is never cached ----


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize("fields", NOT_REPLAYABLE, ids=str)
def test_a_request_whose_answer_cannot_be_replayed_bypasses_the_cache(
    fields: dict[str, Any], endpoint: Endpoint
) -> None:
    assert is_bypassed(request_for(endpoint, **fields))


@pytest.mark.parametrize("logprobs", [0, 1, 5, True])
def test_log_probabilities_of_a_text_completion_bypass_the_cache(logprobs: int) -> None:
    assert is_bypassed(completion_request(logprobs=logprobs))


@pytest.mark.parametrize(
    "content",
    [
        "",
        " ",
        "\n\t \u00a0\u2003",
        [],
        [IMAGE],
        [{"type": "text", "text": "hi"}, IMAGE],
        [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        [{"type": "text", "text": "hi", "cache_control": {}}],
        [{"type": "text"}],
        [{"text": "hi"}],
        [{}],
        [{"type": "text", "text": None}],
        [{"type": "text", "text": 5}],
        [{"type": "text", "text": ["hi"]}],
        [{"type": "text", "text": ""}],
        [{"type": "text", "text": "  "}],
        [{"type": "image_url", "text": "hi"}],
        [{"type": None, "text": "hi"}],
    ],
    ids=str,
)
def test_a_last_message_that_is_not_one_text_bypasses_the_cache(content: Any) -> None:
    assert is_bypassed(chat_request(content))


def test_a_last_message_without_content_bypasses_the_cache() -> None:
    assert is_bypassed(chat_request(messages=[{"role": "user"}]))


@pytest.mark.parametrize("role", ["assistant", "system", "developer", "tool", "function", "User", "user "])
def test_a_last_message_that_is_not_the_users_bypasses_the_cache(role: str) -> None:
    assert is_bypassed(chat_request(messages=[user("hi"), {"role": role, "content": "hi"}]))


@pytest.mark.parametrize("prompt", ["", " ", "\n", ["hi"], ["a", "b"], [1, 2], [[1, 2]], []], ids=str)
def test_a_prompt_that_is_not_one_text_bypasses_the_cache(prompt: Any) -> None:
    assert is_bypassed(completion_request(prompt))


def test_a_prompt_of_embeddings_bypasses_the_cache() -> None:
    assert is_bypassed(completion_request(None, prompt_embeds="AAAA"))
    assert is_bypassed(completion_request("hi", prompt_embeds="AAAA"))


def test_fields_of_the_other_endpoint_separate() -> None:
    assert_all_apart(
        [key_of(chat_request()), key_of(chat_request(prompt="a")), key_of(chat_request(prompt="b"))]
    )
    plain = parse_generation(COMPLETIONS, body_of({"model": "m", "prompt": "hi"}))
    mixed = parse_generation(COMPLETIONS, body_of({"model": "m", "prompt": "hi", "messages": [user("a")]}))
    assert_all_apart([key_of(plain), key_of(mixed)])


def test_making_a_key_leaves_the_request_as_it_was() -> None:
    request = chat_request(
        messages=[user("a"), user([{"type": "text", "text": "hi"}])], stop=["x"], tools=None
    )
    before = json.dumps(request.fields)
    key_of(request)
    assert json.dumps(request.fields) == before


@pytest.mark.parametrize("name", ["user", "safety_identifier"])
def test_a_tenants_users_may_have_answers_of_their_own(name: str) -> None:
    def partition(*by: str, **fields: Any) -> str:
        key = cache_key(chat_request("hi", **fields), "t", "f", by)
        assert key is not None
        return key.partition

    assert partition(name, **{name: "a"}) == partition(name, **{name: "a"})
    assert len({partition(name, **{name: each}) for each in ("a", "b", "*by")} | {partition(name)}) == 4
    assert partition(**{name: "a"}) == partition(**{name: "b"}) == partition()
    assert partition("user", "safety_identifier", user="a") != partition(
        "user", "safety_identifier", safety_identifier="a"
    )


# ---- samples ----

SAMPLED: tuple[dict[str, Any], ...] = (
    {"temperature": 0.7},
    {"temperature": 1},
    {"temperature": 1, "seed": None},
    {"temperature": 0.01, "top_p": 0.5},
)

NOT_SAMPLED: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": None},
    {"temperature": 0},
    {"temperature": 0.0, "seed": 3},
    {"temperature": 0.7, "seed": 0},
    {"top_p": 0.9},
)


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize("fields", SAMPLED)
def test_a_request_for_a_sample_is_answered_by_an_engine_unless_the_setting_says_otherwise(
    endpoint: Endpoint, fields: dict[str, Any]
) -> None:
    request = request_for(endpoint, **fields)
    assert cache_key(request, "t", "f") is None
    exact = cache_key(request, "t", "f", sampled="exact")
    assert exact is not None
    assert not exact.semantic
    whole = cache_key(request, "t", "f", sampled="all")
    assert whole is not None
    assert whole.semantic is (endpoint is CHAT)
    assert (exact.partition, exact.entry_id) == (whole.partition, whole.entry_id)


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize("fields", NOT_SAMPLED)
def test_no_other_request_is_touched_by_the_setting_for_samples(
    endpoint: Endpoint, fields: dict[str, Any]
) -> None:
    request = request_for(endpoint, **fields)
    keys = {cache_key(request, "t", "f", sampled=sampled) for sampled in get_args(Sampled)}
    assert keys == {key_of(request)}


def test_samples_are_not_taken_from_the_cache_by_default() -> None:
    assert CacheSettings().sampled == "never"
