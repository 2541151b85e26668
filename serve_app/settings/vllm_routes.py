"""The routes of vLLM 0.29 that are no paths of a model (``paths.py`` has those), and what becomes of them
here. A test compares both with the installed vLLM, so that a new route is noticed and decided about."""

from __future__ import annotations

OWN = frozenset(
    {
        "/health",
        "/ping",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/models",
        "/version",
        "/openapi.json",
        "/docs",
        "/v1/responses/{response_id}",
        "/v1/responses/{response_id}/cancel",
    }
)
"""The gateway answers them itself: an engine knows only its own part."""

PRIVATE = frozenset(
    {
        # They show how a prompt is rendered, or take tokens, which evade every check of a text.
        "/v1/chat/completions/render",
        "/v1/completions/render",
        "/v1/messages/render",
        "/v1/chat/completions/derender",
        "/v1/completions/derender",
        "/inference/v1/generate",
        "/abort_requests",
        # Many requests in one, which no limit of a single request would hold.
        "/v1/chat/completions/batch",
        "/generative_scoring",
        # Any of the paths above under one name (SageMaker).
        "/invocations",
        # Cohere's chat, in engines with its library and `VLLM_ENABLE_COHERE_API`.
        "/cohere/v2/chat",
        "/cohere/v2/chat/render",
        # They change an engine for all clients.
        "/scale_elastic_ep",
        "/is_scaling_elastic_ep",
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/start_profile",
        "/stop_profile",
        "/fault_tolerance/apply",
        "/fault_tolerance/status",
        # Of the development mode: they pause, reload, sleep, and run code by name.
        "/server_info",
        "/reset_prefix_cache",
        "/reset_mm_cache",
        "/reset_encoder_cache",
        "/collective_rpc",
        "/sleep",
        "/wake_up",
        "/is_sleeping",
        "/pause",
        "/resume",
        "/is_paused",
        "/init_weight_transfer_engine",
        "/start_weight_update",
        "/start_draft_weight_update",
        "/update_weights",
        "/finish_weight_update",
        "/update_weight_version",
        "/weight_info",
        "/get_world_size",
        # What a gateway shows for all engines at once, or what would tell one tenant of another's load.
        "/load",
        "/metrics",
        "/tokenizer_info",
        "/redoc",
        "/docs/oauth2-redirect",
        "/static",
    }
)
"""404 for clients."""
