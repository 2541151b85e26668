"""Disaggregated prefill: prefill engines, and decode engines that continue from their KV cache.

Both build on ``ray.serve.llm``'s servers. A decode engine is an ordinary member of its model's fleet. For
each prompt it asks a prefill replica, through Serve, for the KV cache, and vLLM's connector fetches it. If no
prefill engine does it in time, the decode engine prefills the prompt itself; so losing all prefill replicas
costs time, but no answers.

``PDDecodeServer.chat`` does the same for requests that arrive through Serve; ours arrive at vLLM's own app
(see ``middleware.py``). Checked against Ray 2.60. When it moves, look at
``LLMConfig.kv_connector_backend``, which knows how a connector's requests look, and at the port that
``NixlConnectorBackend`` takes from ``experimental_configs``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from ray import serve
from ray.serve.handle import DeploymentHandle
from ray.serve.llm import LLMConfig, build_llm_deployment
from ray.serve.llm.deployment import PDDecodeServer, PDPrefillServer
from ray.serve.llm.openai_api_models import ChatCompletionRequest, CompletionRequest
from starlette.types import ASGIApp

from deployments.engine.deployment import Engine, llm_config
from deployments.engine.prefill.middleware import RemotePrefill
from deployments.platform.serve import call_errors
from serve_app.breaker import Breaker
from serve_app.fleet import EngineReport, PrefillCounts
from serve_app.model_store import ModelStore
from serve_app.openai.prefill import KV_TRANSFER_PARAMS
from serve_app.openai.requests import Endpoint
from serve_app.settings import DisaggregationSettings, ModelSettings
from serve_app.settings.deployment_names import ENGINE, PREFILL
from serve_app.settings.engine import SIDE_CHANNEL_STRIDE
from serve_app.settings.network import ANY_PORT

SIDE_CHANNEL = "NIXL_SIDE_CHANNEL_PORT_BASE"
COOLDOWN_S = 5.0
"""How long decode engines prefill locally after a failure; then one prompt tries remotely again."""

REPLICA_TIMEOUT_S = 1.0
"""Time to find a prefill replica; if there is one, it takes a millisecond."""

logger = logging.getLogger("ray.serve")


class PrefillEngine(Engine, PDPrefillServer):
    """A prefill engine: it prefills prompts whose answers other engines decode."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, llm_config: LLMConfig, *, model: ModelSettings, ports: range = ANY_PORT
    ) -> None:
        self._config = llm_config
        await super().__init__(llm_config, model=model, ports=ports)

    async def prefill(self, endpoint: Endpoint, body: dict[str, Any]) -> dict[str, Any] | None:
        """Prefill a prompt; returns where its KV cache is. ``None`` if the request is invalid: the decode
        engine will then report the error."""
        kind: type[ChatCompletionRequest | CompletionRequest]
        answer: Any
        if endpoint is Endpoint.CHAT:
            kind, answer = ChatCompletionRequest, self.chat
        else:
            kind, answer = CompletionRequest, self.completions
        try:
            request = kind.model_validate(body)
        except ValidationError:
            return None
        connector = self._config.kv_connector_backend
        assert connector is not None, "the engine has started, and the connector with it"
        async for chunk in await answer(connector.prepare_prefill_request(request=request, peer=None)):
            found: dict[str, Any] | None = getattr(chunk, KV_TRANSFER_PARAMS, None)
            return found
        return None


class DecodeEngine(Engine, PDDecodeServer):
    """A decode engine: it decodes answers to prompts that a :class:`PrefillEngine` has prefilled. By the
    order of the base classes, ``Engine``'s constructor calls ``PDDecodeServer``'s instead of
    ``LLMServer``'s."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self,
        llm_config: LLMConfig,
        *,
        model: ModelSettings,
        prefill_server: DeploymentHandle[Any],
        ports: range = ANY_PORT,
    ) -> None:
        self._prefill_server = prefill_server
        self._timeout_s = _disaggregation(model).prefill_timeout_s
        self._breaker = Breaker(threshold=1, cooldown_s=COOLDOWN_S)
        self._prefills = PrefillCounts(elsewhere=0, here=0)
        await super().__init__(llm_config, model=model, ports=ports)

    async def describe(self) -> EngineReport:
        return replace(await super().describe(), prefills=self._prefills)

    def _server_arguments(self) -> dict[str, Any]:
        return super()._server_arguments() | {"prefill_server": self._prefill_server}

    async def _build_app(self) -> ASGIApp:
        return RemotePrefill(await super()._build_app(), self._prefill_elsewhere)

    async def _prefill_elsewhere(self, endpoint: Endpoint, body: dict[str, Any]) -> dict[str, Any] | None:
        found = None
        if self._breaker.allows(time.monotonic()):
            found = await self._ask(endpoint, body)
        self._prefills = _counted(self._prefills, elsewhere=found is not None)
        return found

    async def _ask(self, endpoint: Endpoint, body: dict[str, Any]) -> dict[str, Any] | None:
        try:
            found = await self._call(endpoint, body)
        except call_errors() as error:
            self._breaker.failed(time.monotonic())
            logger.warning("the decode engine prefills: remote prefill failed: %s", type(error).__name__)
            return None
        self._breaker.succeeded()
        return found

    async def _call(self, endpoint: Endpoint, body: dict[str, Any]) -> dict[str, Any] | None:
        """Call a prefill replica within two time-outs: an ordinary handle call would wait until there is a
        replica. Raises: any of ``call_errors()``."""
        method = self._prefill_server.prefill
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(REPLICA_TIMEOUT_S):
                replica = await stack.enter_async_context(method.choose_replica(endpoint, body))
            response = method.dispatch(replica, endpoint, body)
            try:
                async with asyncio.timeout(self._timeout_s):
                    found: dict[str, Any] | None = await response
            except TimeoutError:
                response.cancel()  # type: ignore[no-untyped-call]
                raise
        return found


def _counted(counts: PrefillCounts, *, elsewhere: bool) -> PrefillCounts:
    return PrefillCounts(counts.elsewhere + elsewhere, counts.here + (not elsewhere))


def build_disaggregated(
    model: ModelSettings, store: ModelStore, options: dict[str, Any], ports: range
) -> serve.Application:
    """The deployments of a model with ``engine.disaggregation``. ``options``: Serve's options for the decode
    engines; ``ports``: where all of them listen.

    Raises:
        ValueError: Ray or vLLM refuses an argument.
    """
    settings = _disaggregation(model)
    prefills = prefilling(model)
    prefill_options = options | {"num_replicas": settings.prefill_replicas, "autoscaling_config": None}
    port = settings.side_channel_port
    prefill = build_llm_deployment(
        _at_port(llm_config(prefills, store), port),
        deployment_cls=PrefillEngine,
        name_prefix=PREFILL,
        bind_kwargs={"model": prefills, "ports": ports},
        override_serve_options=prefill_options,
    )
    return build_llm_deployment(
        _at_port(llm_config(model, store), port + SIDE_CHANNEL_STRIDE),
        deployment_cls=DecodeEngine,
        name_prefix=ENGINE,
        bind_kwargs={"model": model, "prefill_server": prefill, "ports": ports},
        override_serve_options=options,
    )


def prefilling(model: ModelSettings) -> ModelSettings:
    """``model`` with the settings of its prefill replicas: they do not speculate."""
    engine = model.managed_engine.model_copy(update={"speculation": None})
    return model.model_copy(update={"engine": engine})


def _at_port(config: LLMConfig, port: int) -> LLMConfig:
    config.experimental_configs[SIDE_CHANNEL] = port
    return config


def _disaggregation(model: ModelSettings) -> DisaggregationSettings:
    settings = model.managed_engine.disaggregation
    assert settings is not None, f"model {model.id!r} has no disaggregated prefill"
    return settings
