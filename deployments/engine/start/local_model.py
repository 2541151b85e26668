"""A ``ray.serve.llm`` callback that skips the download of a model that is already a folder on the node.

Without it Ray starts a task on every node to download the model. The task imports vLLM in one more process
(eight seconds of a small machine's start), only to find nothing to download. ``LLMConfig`` names this class
by its import path. Watch when Ray moves: ``CallbackBase`` is not public in Ray 2.60; its
``ctx.run_init_node`` is what ``LLMConfig.callback_config`` is documented to change.
"""

from __future__ import annotations

from ray.llm._internal.common.callbacks.base import CallbackBase


class LocalModel(CallbackBase):
    """Skips the download step."""

    async def on_before_node_init(self) -> None:
        self.ctx.run_init_node = False
