"""All settings of an application: its sections, and the checks across them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from serve_app.settings.accounts import AccountSettings
from serve_app.settings.alerts import AlertSettings
from serve_app.settings.auto_model import AutoModelSettings, wrong_names
from serve_app.settings.base import Frozen
from serve_app.settings.cache import CacheRule, CacheSettings
from serve_app.settings.deployment_names import shared_deployments
from serve_app.settings.embedder import EmbedderSettings
from serve_app.settings.engine import FORMER_ANSWERS, shared_side_channels
from serve_app.settings.experiments import ExperimentSettings, wrong_experiments
from serve_app.settings.feedback import FeedbackSettings
from serve_app.settings.gateway import GatewaySettings
from serve_app.settings.guardrails import GuardrailSettings, wrong_guardrails
from serve_app.settings.keys import KeySettings
from serve_app.settings.limits import LimitSettings
from serve_app.settings.logs import LogSettings
from serve_app.settings.media import MediaSettings
from serve_app.settings.model import ModelSettings
from serve_app.settings.network import NetworkSettings
from serve_app.settings.nodes import NodeSettings
from serve_app.settings.prompts import PromptSettings
from serve_app.settings.proxy import ProxySettings
from serve_app.settings.realtime import RealtimeSettings
from serve_app.settings.responses import ResponsesSettings
from serve_app.settings.traces import TraceSettings


class Settings(Frozen):
    """The ``args`` of a Promptly application."""

    models: tuple[ModelSettings, ...] = Field(strict=False)
    auto_models: tuple[AutoModelSettings, ...] = Field(default=(), strict=False)
    embedder: EmbedderSettings | None = None
    cache: CacheSettings | None = None
    auth: Literal["none", "loopback"] | KeySettings = "loopback"
    accounts: AccountSettings | None = None
    responses: ResponsesSettings = ResponsesSettings()
    feedback: FeedbackSettings | None = None
    prompts: PromptSettings | None = None
    gateway: GatewaySettings = GatewaySettings()
    network: NetworkSettings = NetworkSettings()
    nodes: NodeSettings = NodeSettings()
    proxy: ProxySettings = ProxySettings()
    limits: LimitSettings = LimitSettings()
    media: MediaSettings = MediaSettings()
    alerts: AlertSettings = AlertSettings()
    realtime: RealtimeSettings = RealtimeSettings()
    logs: LogSettings = LogSettings()
    traces: TraceSettings = TraceSettings()
    guardrails: tuple[GuardrailSettings, ...] = Field(default=(), strict=False)
    experiments: tuple[ExperimentSettings, ...] = Field(default=(), strict=False)

    @model_validator(mode="before")
    @classmethod
    def _accounts_are_asked_for(cls, given: Any) -> Any:
        """`auth: {accounts: true}` needs no section."""
        if not isinstance(given, Mapping) or given.get("accounts") is not None:
            return given
        auth = given.get("auth")
        asked = (
            auth.accounts
            if isinstance(auth, KeySettings)
            else isinstance(auth, Mapping) and (auth.get("accounts") is True)
        )
        return {**given, "accounts": AccountSettings()} if asked else given

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.models:
            raise ValueError("`models` is empty: give at least one model")
        embedder = None if self.embedder is None else self.embedder.id
        for problem in wrong_names(self.models, self.auto_models, embedder):
            raise ValueError(problem)
        for problem in shared_deployments(model.id for model in self.models if model.engine is not None):
            raise ValueError(problem)
        for problem in shared_side_channels(self._side_channel_ports):
            raise ValueError(problem)
        if self.accounts is not None and not isinstance(self.auth, KeySettings):
            raise ValueError("`accounts` needs `auth` with keys: `auth: {accounts: true}`")
        if self.cache is not None and self.embedder is None:
            raise ValueError("`cache` needs an `embedder`")
        capture = None if self.feedback is None else self.feedback.capture
        if capture is not None and capture.judge is not None and capture.judge.model not in self._names:
            raise ValueError(f"`feedback.capture.judge.model`: {capture.judge.model!r} is not served")
        for problem in wrong_guardrails(self.guardrails, self._names):
            raise ValueError(problem)
        own, has_prompts = _served(self.models), self.prompts is not None
        names = own | {auto.id for auto in self.auto_models}
        for problem in wrong_experiments(self.experiments, names, own, has_prompts=has_prompts):
            raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _drafts_are_shared_on_purpose(self) -> Self:
        for model in self.models:
            speculation = None if model.engine is None else model.engine.speculation
            if speculation is None or speculation.share_drafts or not isinstance(self.auth, KeySettings):
                continue
            if speculation.drafts_from_answers and FORMER_ANSWERS in (speculation.options or {}):
                raise ValueError(
                    f"model {model.id!r}: `engine.speculation.options.{FORMER_ANSWERS}` lets tenants draft "
                    "from each other's answers: with keys, set `engine.speculation.share_drafts: true`, or "
                    "leave it out"
                )
        return self

    @property
    def has_admin_token(self) -> bool:
        """Whether the admin token opens `/admin`."""
        return self.auth == "loopback" or (isinstance(self.auth, KeySettings) and self.auth.accounts)

    @property
    def _names(self) -> set[str]:
        """Every name that a request may use for a model."""
        embedder = () if self.embedder is None else (self.embedder.id,)
        return {*_served(self.models), *(auto.id for auto in self.auto_models), *embedder}

    @property
    def _side_channel_ports(self) -> dict[str, int]:
        """The ports of the models with disaggregated prefill, by id."""
        apart = [(model.id, model.engine.disaggregation) for model in self.models if model.engine is not None]
        return {name: settings.side_channel_port for name, settings in apart if settings is not None}

    @property
    def engine_models(self) -> tuple[ModelSettings, ...]:
        """The models as their engines run them. With keys there may be several tenants, so engines do not
        draft for one request from the answers to others, unless ``share_drafts`` allows it."""
        if not isinstance(self.auth, KeySettings):
            return self.models
        return tuple(_drafting_alone(model) for model in self.models)

    @property
    def cache_joins(self) -> bool:
        return self.cache is not None and self.cache.join

    @property
    def cache_with_models(self) -> CacheSettings | None:
        """The cache's settings with each model's own lifetime as a rule after all others."""
        if self.cache is None:
            return None
        own = [
            CacheRule(ttl_s=model.cache_ttl_s, model=name)
            for model in self.models
            if model.cache_ttl_s is not None
            for name in (model.id, *model.adapters)
        ]
        return self.cache.model_copy(update={"rules": [*self.cache.rules, *own]})


def _served(models: tuple[ModelSettings, ...]) -> set[str]:
    """All names under which members answer."""
    return {name for model in models for name in (model.id, *model.aliases, *model.adapters)}


def _drafting_alone(model: ModelSettings) -> ModelSettings:
    speculation = None if model.engine is None else model.engine.speculation
    if model.engine is None or speculation is None or speculation.share_drafts:
        return model
    if not speculation.drafts_from_answers:
        return model
    engine = model.engine.model_copy(update={"speculation": speculation.without_former_answers()})
    return model.model_copy(update={"engine": engine})
