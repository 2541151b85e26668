"""Each speculation method that fits the model, with and without the guard: equal answers, and their speed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.engine_server import Answer, ask, get
from benchmarks.peers import PeerError
from benchmarks.quantized_speed import PROMPTS, TOKENS, WARM_TOKENS, last_reason
from benchmarks.speculation import counters, has_suffix
from benchmarks.table import at_least

from gpu_check.contract import Bench, Finding, Reading, failed, finding, judged, left_out
from gpu_check.engines import EXACT, settings, started

NGRAM: Mapping[str, Any] = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
SUFFIX: Mapping[str, Any] = {"method": "suffix", "num_speculative_tokens": 8}
REPEATS = "red, green, blue, white, red, green, blue, white, red, green, blue, white, red, green,"
"""What comes next has been said before: methods that draft from the text have something to draft."""

ASKED = (REPEATS, *PROMPTS)
CPU_ASKED, CPU_TOKENS = ASKED[:2], 32
"""A token in float32 takes a tenth of a second on two cores, and more beside other work."""

HEAD = "eagle3-head"
MADE_HEAD = "a head with made-up weights: its drafts are refused, and all else is real"
GUARD = {True: "guarded", False: "without the guard"}


def speculation(bench: Bench) -> Iterator[Finding]:
    without, _ = _answers(bench, None)
    yield finding("none", Reading("TPOT", tpot_ms(without), "ms"))
    for method, guard in methods(bench):
        subject = f"{method['method']}, {GUARD[guard]}"
        try:
            answers, drafted = _answers(bench, {**method, "guard": guard})
        except PeerError as error:
            yield failed(subject, f"the engine did not start: {last_reason(str(error))}")
            continue
        yield judgement(subject, without, answers, drafted)
    if not has_suffix():
        yield left_out("suffix", "the package arctic-inference is not installed")
    if _config(bench) is None:
        yield left_out("eagle3", f"no head can be made for {bench.model}: it is no folder of a Llama")


def methods(bench: Bench) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """What can be tried, and whether under the guard. As a draft model the model drafts for itself."""
    yield NGRAM, True
    yield NGRAM, False
    head = make_head(bench)
    if head is not None:
        eagle3 = {"method": "eagle3", "model": str(head), "num_speculative_tokens": 3}
        yield eagle3 | {"options": {"draft_load_config": {"load_format": "dummy"}}}, True
        yield eagle3 | {"options": {"draft_load_config": {"load_format": "dummy"}}}, False
    yield {"method": "draft_model", "model": bench.model, "num_speculative_tokens": 3}, True
    if has_suffix():
        yield SUFFIX, True


def make_head(bench: Bench) -> Path | None:
    """The folder of an EAGLE-3 head of the model's shape, with a layer of its own and no weights; ``None`` if
    the model is no Llama in a folder."""
    config = _config(bench)
    if config is None:
        return None
    folder = bench.folder / HEAD
    folder.mkdir()
    own = {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "tie_word_embeddings": False}
    head = {**config, **own, "draft_vocab_size": config["vocab_size"]}
    (folder / "config.json").write_text(json.dumps(head), encoding="utf-8")
    return folder


def _config(bench: Bench) -> dict[str, Any] | None:
    file = Path(bench.model) / "config.json"
    if not file.is_file():
        return None
    config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return config if config.get("architectures") == ["LlamaForCausalLM"] else None


def _answers(bench: Bench, method: Mapping[str, Any] | None) -> tuple[list[Answer], tuple[float, float]]:
    """Greedy answers, and the tokens drafted and accepted for them."""
    model = settings(bench, small=True, **EXACT, max_num_seqs=16, speculation=method)
    with started(bench, model) as endpoint:
        ask(endpoint, PROMPTS[:1], WARM_TOKENS)
        before = counters(get(endpoint.url, "/metrics"))
        answers = ask(endpoint, ASKED, TOKENS) if bench.on_gpu else ask(endpoint, CPU_ASKED, CPU_TOKENS)
        after = counters(get(endpoint.url, "/metrics"))
        return answers, (after[0] - before[0], after[1] - before[1])


def judgement(
    subject: str, without: Sequence[Answer], answers: Sequence[Answer], counted: tuple[float, float]
) -> Finding:
    """The answers must be those without speculation, and something must have been drafted."""
    drafted, accepted = counted
    same = sum(a.token_ids == b.token_ids for a, b in zip(without, answers, strict=True))
    return finding(
        subject,
        Reading("TPOT", tpot_ms(answers), "ms"),
        Reading("of that without", tpot_ms(answers) / tpot_ms(without), "×"),
        judged("equal answers", 100 * same / len(answers), "%", at_least(100)),
        judged("drafted", drafted, "tokens", at_least(1)),
        Reading("accepted", 100 * accepted / drafted if drafted else 0.0, "%"),
        reason=MADE_HEAD if subject.startswith("eagle3") else "",
    )


def tpot_ms(answers: Sequence[Answer]) -> float:
    return 1000 * median(answer.tpot_s for answer in answers)
