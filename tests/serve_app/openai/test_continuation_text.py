"""With a real tokenizer, decoded as vLLM decodes, a continued answer has the answer's text."""

from __future__ import annotations

from itertools import product

import pytest
from samples import CHAT, chat_request
from scripted_vllm import ScriptedEngine, Step, delivered
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from serve_app.model_store import ModelStore
from serve_app.openai.answers import answer_from_stream

ANSWERS = (
    "The capital of France is Paris.\n\n- one\n  - two",
    " leading  and   inner spaces \t\n",
    "Größe, naïve café — “quoted” … 12,345.67€",
    "东京都是日本的首都。你好,世界!",
    "👍🏽 👩‍👩‍👧 😀😃 ok 🇩🇪",
    "שלום עולם, مرحبا بالعالم, สวัสดี, नमस्ते",
    "\ufffd half \ufffd.",
    'def f():\n    return {"a": [1, 2]}  # "quoted"',
)


class RealTokenizer:
    """SmolLM2's, through the class that vLLM's detokenizer uses."""

    def __init__(self, store: ModelStore) -> None:
        folder = store.folder("HuggingFaceTB/SmolLM2-135M-Instruct")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.end_of_text = self._tokenizer.token_to_id("<|im_end|>")

    def encode(self, text: str) -> list[int]:
        tokens: list[int] = self._tokenizer.encode(text).ids
        return tokens

    def decode(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False))

    def decode_stream(self, prompt: list[int]) -> Step:
        stream = DecodeStream(ids=prompt, skip_special_tokens=True)
        return lambda token: stream.step(self._tokenizer, token)


@pytest.fixture(scope="module")
def tokenizer(prepared_models: ModelStore) -> RealTokenizer:
    return RealTokenizer(prepared_models)


def make_engine(tokenizer: RealTokenizer, answer: str, tokens_per_chunk: int) -> ScriptedEngine:
    return ScriptedEngine(
        prompt=tokenizer.encode("<|im_start|>user\nwrite 京 👍<|im_end|>\n<|im_start|>assistant\n"),
        answer=[*tokenizer.encode(answer), tokenizer.end_of_text],
        tokenizer=tokenizer,
        end_of_text=tokenizer.end_of_text,
        tokens_per_chunk=tokens_per_chunk,
    )


@pytest.mark.parametrize("answer", ANSWERS, ids=ascii)
def test_the_tokenizers_text_is_the_answers(tokenizer: RealTokenizer, answer: str) -> None:
    engine = make_engine(tokenizer, answer, 1)
    step = tokenizer.decode_stream(engine.prompt)
    assert "".join(step(token) or "" for token in engine.answer).removesuffix("<|im_end|>") == answer


@pytest.mark.parametrize("tokens_per_chunk", [1, 2, 3, 5])
@pytest.mark.parametrize("answer", ANSWERS, ids=ascii)
def test_an_answer_continued_from_any_token_is_the_answer(
    tokenizer: RealTokenizer, answer: str, tokens_per_chunk: int
) -> None:
    request = chat_request(stream=True, stream_options={"include_usage": True})
    engine = make_engine(tokenizer, answer, tokens_per_chunk)
    chunks = len(engine.answer) // tokens_per_chunk
    for first, second in product(range(1, chunks + 1), (1, 2, 3)):
        got = answer_from_stream(CHAT, [delivered(request, engine, first, second, in_events=True)])
        assert got is not None
        assert got.text == answer, (first, second)
        assert got.usage.completion_tokens == len(engine.answer)
