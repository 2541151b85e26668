"""The guard inside vLLM's own scheduler: real schedulers, and a model whose drafts hold with a fixed chance.

The model counts: token n of an answer is n, and a drafted token is that or another one. Time is the model's:
a step takes 1 + tokens / KNEE, and what it drafts for, whether that is checked or not.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from support.speculating import TINY_LLAMA
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from deployments.engine.vllm.arguments import DEPTH_SCHEDULER, DEPTHS, GUARDED_SCHEDULER
from deployments.engine.vllm.guarded_scheduler import GuardedAsyncScheduler, guarded_scheduler

DEPTH, KNEE, BLOCK, BLOCKS, ENOUGH_TOKENS = 4, 8.0, 128, 2000, 8000


def configuration(folder: Path, method: str, **speculation: Any) -> Any:
    (folder / "config.json").write_text(json.dumps(TINY_LLAMA | {"max_position_embeddings": 8192}))
    made = EngineArgs(
        model=str(folder),
        skip_tokenizer_init=True,
        max_num_seqs=8,
        enforce_eager=True,
        enable_prefix_caching=False,
        scheduler_cls=GUARDED_SCHEDULER,
        speculative_config={
            "method": "ngram",
            "num_speculative_tokens": DEPTH,
            "prompt_lookup_max": 4,
            **speculation,
        },
    ).create_engine_config()
    made.cache_config.num_gpu_blocks = BLOCKS
    made.speculative_config.method = method  # the others would load a model, which is not what is tested
    return made


def scheduler(config: Any) -> Any:
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    caches = KVCacheConfig(
        num_blocks=BLOCKS, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
    )
    made = config.scheduler_config.get_scheduler_cls()
    return made(
        vllm_config=config,
        kv_cache_config=caches,
        structured_output_manager=StructuredOutputManager(config),
        log_stats=True,
        block_size=BLOCK,
    )


@dataclass
class Ran:
    """``ratio``: time per token and request, over what it is without speculation. ``asked``: tokens that vLLM
    was to draft at each step."""

    ratio: float
    depths: list[int]
    asked: list[int]
    longest: list[int]
    """Of the drafts that each step checked."""


def run(
    scheduler: Any,
    acceptance: float,
    coverage: float = 1.0,
    steps: int = 1200,
    batch: int = 2,
    *,
    drafting: float = 0.0,
) -> Ran:
    """``drafting``: what it takes in every step, as on the second model runner."""
    now, tokens, choose = 0.0, 0, random.Random(0)
    scheduler.clock = lambda: now
    depths, asked, longest = [], [], []
    said = dict.fromkeys((f"r{number}" for number in range(batch)), 0)
    for number in range(batch):
        ends = SamplingParams(max_tokens=ENOUGH_TOKENS, ignore_eos=True)
        scheduler.add_request(Request(f"r{number}", list(range(20)), ends, None))
    for _ in range(steps):
        output = scheduler.schedule()
        now += 1 + drafting + output.total_num_scheduled_tokens / KNEE
        names = list(output.num_scheduled_tokens)
        drafts = [output.scheduled_spec_decode_tokens.get(name, []) for name in names]
        sampled = [_sampled(said[name], draft) for name, draft in zip(names, drafts, strict=True)]
        tokens += sum(map(len, sampled))
        for name, new in zip(names, sampled, strict=True):
            said[name] += len(new)
        scheduler.update_from_output(output, _model_output(names, sampled))
        asked.append(output.num_spec_tokens_to_schedule)
        proposed = [_draft(said[name], asked[-1], acceptance, coverage, choose) for name in names]
        scheduler.update_draft_token_ids(DraftTokenIds(names, proposed))
        depths.append(scheduler.guard.depth)
        longest.append(max(map(len, drafts)))
    return Ran(now / (tokens / batch) / (1 + batch / KNEE), depths, asked, longest)


def _sampled(said: int, draft: list[int]) -> list[int]:
    """What of the draft holds, and one token more."""
    held = [token for number, token in enumerate(draft) if draft[: number + 1] == _answer(said, number + 1)]
    return _answer(said, len(held) + 1)


def _answer(begin: int, count: int) -> list[int]:
    return [1 + number % 90 for number in range(begin, begin + count)]


def _draft(said: int, count: int, acceptance: float, coverage: float, choose: random.Random) -> list[int]:
    if choose.random() >= coverage:
        return []
    return [token if choose.random() < acceptance else 99 for token in _answer(said, count)]


def _model_output(names: list[str], sampled: list[list[int]]) -> ModelRunnerOutput:
    return ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: number for number, name in enumerate(names)},
        sampled_token_ids=sampled,
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )


# The drafts of ``ngram`` and ``suffix`` are judged in hindsight, those of a model when they are checked.
# ``suffix`` always drafts the same number; the others are asked for none while that does not pay.
all_ways = pytest.mark.parametrize("method", ["ngram", "suffix", "draft_model"])


@all_ways
def test_drafts_that_are_refused_cost_at_most_three_percent(tmp_path: Path, method: str) -> None:
    ran = run(scheduler(configuration(tmp_path, method)), acceptance=0.05)
    assert ran.ratio <= 1.03
    assert ran.depths[-1] == 0
    # In hindsight, one window at most: before any was checked, it is not known what that costs.
    most = 0.2 if method == "draft_model" else 0.05
    assert sum(map(bool, ran.longest)) < most * len(ran.longest)
    if method == "ngram":
        assert sum(map(bool, ran.asked)) < 0.4 * len(ran.asked)


@all_ways
@pytest.mark.parametrize("coverage", [0.4, 1.0])
def test_drafts_that_hold_are_kept(tmp_path: Path, method: str, coverage: float) -> None:
    ran = run(scheduler(configuration(tmp_path, method)), acceptance=0.85, coverage=coverage)
    assert ran.depths[-1] >= 3
    assert max(ran.longest) == DEPTH
    assert ran.ratio <= (0.65 if coverage == 1.0 else 0.85)


DRAFTING = 0.5


@pytest.mark.parametrize(("acceptance", "most"), [(0.05, 1.03), (0.85, 0.65)])
def test_drafting_in_every_step_counts_as_a_part_of_the_step(
    tmp_path: Path, acceptance: float, most: float
) -> None:
    """The second model runner drafts at depth 0 too: what the guard decides is right beside such steps, and
    over an engine without speculation the drafting is lost."""
    made = scheduler(configuration(tmp_path, "eagle3"))
    ran = run(made, acceptance, drafting=DRAFTING)
    assert made.guard.times.knee_tokens == pytest.approx((1 + DRAFTING) * KNEE, rel=0.05)
    plain = 1 + 2 / KNEE
    over_drafting_alone = ran.ratio * plain / (plain + DRAFTING)
    assert over_drafting_alone <= most
    if acceptance < 0.5:
        assert ran.depths[-1] == 0
        assert ran.ratio >= (plain + DRAFTING) / plain
    else:
        assert ran.depths[-1] >= 3


def test_the_depth_by_load_that_was_set_is_the_most(tmp_path: Path) -> None:
    by_load = [[1, 1, DEPTH], [2, 8, 1]]
    config = configuration(tmp_path, "ngram", num_speculative_tokens_per_batch_size=by_load)
    assert max(run(scheduler(config), acceptance=0.95).longest) == 1


def test_a_depth_by_load_that_vllm_is_not_told_of_is_the_most_too(tmp_path: Path) -> None:
    config = configuration(tmp_path, "eagle3")
    config.additional_config = {DEPTHS: [[1, 1, DEPTH], [2, 8, 1]]}
    ran = run(scheduler(config), acceptance=0.95)
    assert max(ran.longest) == max(ran.asked) == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_without_the_guard_vllms_own_scheduler_keeps_to_the_depths(tmp_path: Path, is_async: bool) -> None:
    config = configuration(tmp_path, "eagle3")
    config.additional_config = {DEPTHS: [[1, 1, DEPTH], [2, 4, 1], [5, 8, 0]]}
    config.scheduler_config.scheduler_cls = DEPTH_SCHEDULER
    config.scheduler_config.async_scheduling = is_async
    made = scheduler(config)
    assert isinstance(made, AsyncScheduler) == is_async
    assert made.dynamic_sd_lookup[1:] == [DEPTH, 1, 1, 1, 0, 0, 0, 0]


def test_vllms_asynchronous_scheduler_is_guarded_too(tmp_path: Path) -> None:
    config = configuration(tmp_path, "ngram")
    config.scheduler_config.async_scheduling = True
    made = scheduler(config)
    assert isinstance(made, GuardedAsyncScheduler)
    assert isinstance(made, AsyncScheduler)


def test_with_pipeline_stages_drafts_are_judged_when_they_are_checked(tmp_path: Path) -> None:
    """There they come before the token that they follow."""
    config = configuration(tmp_path, "ngram")
    config.parallel_config.pipeline_parallel_size = 2
    assert not scheduler(config).guard.policy.hindsight
    assert scheduler(configuration(tmp_path, "ngram")).guard.policy.hindsight


def test_the_name_given_to_vllm_is_the_factory(tmp_path: Path) -> None:
    assert configuration(tmp_path, "ngram").scheduler_config.get_scheduler_cls() is guarded_scheduler
