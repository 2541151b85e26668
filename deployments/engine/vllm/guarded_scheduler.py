"""vLLM's scheduler with a guard on speculation; it runs in vLLM's own process.

vLLM's ``scheduler_cls`` names it (see ``deployments.engine.vllm.arguments``). Not public in vLLM 0.29; check
when vLLM moves:

- ``Scheduler.dynamic_sd_lookup``: depth by the number of scheduled requests, read at every step. The second
  model runner always drafts ``num_speculative_tokens`` and only verifies fewer, so drafting is a fixed part
  of every step there, and the guard's fit of durations counts it as such;
- ``make_spec_decoding_stats``: called for each request whose draft was judged;
- ``update_draft_token_ids``: receives the drafts for the next step (not with asynchronous scheduling, where
  drafts stay on the device), and ``Request.is_prefill_chunk``: drafts of a prompt chunk are dropped;
- ``update_from_output``: called once for each output of ``schedule``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

from deployments.engine.vllm.arguments import DEPTHS
from serve_app.settings.engine import DEPTH_CAN_CHANGE
from serve_app.speculation import Guard, GuardPolicy

WATCHED = 16
"""Requests per step whose drafts are compared in hindsight with the tokens that came: 3 to 4 µs each."""

logger = logging.getLogger("vllm.promptly")  # vLLM's own handlers show it


def guarded_scheduler(vllm_config: Any, **arguments: Any) -> Scheduler:
    """The factory that ``scheduler_cls`` names: a guarded version of the scheduler that vLLM would choose."""
    is_async = vllm_config.scheduler_config.async_scheduling
    kind = GuardedAsyncScheduler if is_async else GuardedScheduler
    return kind(vllm_config=vllm_config, **arguments)


def depth_scheduler(vllm_config: Any, **arguments: Any) -> Scheduler:
    """The factory that ``scheduler_cls`` names: vLLM's own scheduler with the depth by load from
    ``additional_config``."""
    is_async = vllm_config.scheduler_config.async_scheduling
    made = (AsyncScheduler if is_async else Scheduler)(vllm_config=vllm_config, **arguments)
    made.dynamic_sd_lookup = made.dynamic_sd_lookup or _own_depths(vllm_config)
    return made


def _own_depths(vllm_config: Any) -> list[int] | None:
    """Depth by the number of scheduled requests, from ``additional_config``; ``None``: not set."""
    ranges = vllm_config.additional_config.get(DEPTHS)
    if ranges is None:
        return None
    return build_dynamic_sd_schedule_lookup(
        ranges, vllm_config.scheduler_config.max_num_seqs, vllm_config.num_speculative_tokens
    )


class GuardedScheduler(Scheduler):
    """Limits the depth of drafts to what the guard allows."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.clock: Callable[[], float] = time.monotonic
        speculation: Any = self.vllm_config.speculative_config
        self._asks_depth = speculation.method in DEPTH_CAN_CHANGE
        # A draft model must be asked for exactly the depth in use: more would cost its time.
        is_seen = speculation.method == "ngram" or not self._asks_depth
        self._cuts_drafts = is_seen and not isinstance(self, AsyncScheduler)
        # With pipeline stages, drafts arrive before the token that they follow.
        self._looks_back = self._cuts_drafts and not self.use_pp
        self._drafted = 0
        policy = GuardPolicy.with_hindsight if self._looks_back else GuardPolicy
        self.guard = Guard(policy(self.num_spec_tokens))
        self._started: dict[int, float] = {}  # by the id of a step's SchedulerOutput
        self._ended = 0.0
        deepest = [self.num_spec_tokens] * (self.scheduler_config.max_num_seqs + 1)
        self._by_load = tuple(self.dynamic_sd_lookup or _own_depths(self.vllm_config) or deepest)
        self._apply()

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        now = self.clock()
        output = super().schedule(*args, **kwargs)
        self._started[id(output)] = now
        return output

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        if self._cuts_drafts:
            if self._looks_back and self._drafted:
                self._offer(draft_token_ids)
            depth = self.guard.depth
            draft_token_ids.draft_token_ids = [draft[:depth] for draft in draft_token_ids.draft_token_ids]
        super().update_draft_token_ids(draft_token_ids)

    def _offer(self, draft_token_ids: Any) -> None:
        drafts = zip(draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=True)
        for name, draft in islice(drafts, WATCHED):
            request = self.requests.get(name)
            if request is not None and not request.is_prefill_chunk:
                self.guard.offered(name, request.all_token_ids, draft)

    def make_spec_decoding_stats(
        self,
        spec_decoding_stats: Any,
        num_draft_tokens: int,
        num_accepted_tokens: int,
        num_invalid_spec_tokens: dict[str, int] | None,
        request_id: str,
    ) -> Any:
        invalid = (num_invalid_spec_tokens or {}).get(request_id, 0)  # a grammar forbade them
        self.guard.judged(num_draft_tokens - invalid, num_accepted_tokens)
        return super().make_spec_decoding_stats(
            spec_decoding_stats, num_draft_tokens, num_accepted_tokens, num_invalid_spec_tokens, request_id
        )

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        self._drafted = scheduler_output.num_spec_tokens_to_schedule
        now = self.clock()
        # With asynchronous scheduling a step is scheduled while the one before it still runs.
        began = max(self._started.pop(id(scheduler_output), now), self._ended)
        self._ended = now
        drafts = scheduler_output.scheduled_spec_decode_tokens
        lengths = scheduler_output.num_scheduled_tokens
        decoding = sum(count == 1 + len(drafts.get(name, ())) for name, count in lengths.items())
        seconds = now - began if decoding == len(lengths) else None
        if self.guard.stepped(decoding, scheduler_output.total_num_scheduled_tokens, seconds):
            level = logging.DEBUG if self.guard.is_trying else logging.INFO
            logger.log(level, "speculation: depth %d: %s", self.guard.depth, self.guard.reason)
            self._apply()
        return outputs

    def _apply(self) -> None:
        if self._asks_depth:
            self.dynamic_sd_lookup = [min(self.guard.drafts, most) for most in self._by_load]


class GuardedAsyncScheduler(GuardedScheduler, AsyncScheduler):
    """The same guard on vLLM's asynchronous scheduler."""
