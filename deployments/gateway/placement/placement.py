"""Every model's members and queue, as one gateway knows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from deployments.gateway.placement.external import ExternalUpstream
from deployments.gateway.placement.fleet_watch import FleetWatch
from deployments.gateway.placement.queue import Admission
from deployments.gateway.placement.scaling import Scaling
from deployments.wire.upstream import UpstreamPool
from serve_app.fleet import FleetTable
from serve_app.gateways.shares import Share
from serve_app.routing import POLICIES, Router
from serve_app.routing.sent_prompts import SentPrompt, SentPrompts
from serve_app.settings import Settings
from serve_app.traffic import Traffic

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle


class SharedByGateways(Protocol):
    """``share``: what this gateway may use of what several use; ``sent``: where it tells them of its prompts;
    ``None``: it is alone."""

    share: Share
    sent: SentPrompts | None


class Placement:
    """Owns the fleet table and, by model, routers and queues. ``has_keys``: tenants share the members fairly.
    Made inside a running event loop; ``close`` ends it."""

    def __init__(
        self,
        settings: Settings,
        engines: Mapping[str, DeploymentHandle[Any]],
        external: Sequence[ExternalUpstream],
        upstream: UpstreamPool,
        traffic: Traffic,
        *,
        has_keys: bool,
        together: SharedByGateways,
    ) -> None:
        share = together.share
        self._scaling = Scaling(settings, engines)
        may_be_empty = self._scaling.cold_starts.keys()
        limits = {model.id: model.max_requests_per_replica for model in settings.models}
        self.fleet = FleetTable(limits, may_be_empty, share)
        self.routers = _routers(settings, together.sent)
        self.admissions = {
            model: Admission(
                model,
                self.fleet,
                router,
                settings.limits,
                traffic,
                shared=has_keys,
                cold_start=self._scaling.cold_starts.get(model),
                demand=self._scaling.demands.get(model),
                part_of=share.of,
            )
            for model, router in self.routers.items()
        }
        self._watch = FleetWatch(
            engines=engines,
            external=external,
            fleet=self.fleet,
            upstream=upstream,
            period_s=settings.gateway.fleet_poll_s,
            changed=self._changed,
            may_be_empty=may_be_empty,
        )
        self._scaling.start(self.admissions)

    def _changed(self, model: str) -> None:
        """Forget members that are gone, and give new room to requests that wait."""
        self.routers[model].keep([member.name for member in self.fleet.members(model)])
        self.admissions[model].wake()

    def shared(self) -> None:
        """This gateway's share has changed."""
        self.fleet.shared()
        for admission in self.admissions.values():
            admission.wake()

    def heard(self, prompts: Iterable[SentPrompt]) -> None:
        """Another gateway has sent these. One to a member that is not known here (yet) is left out
        until it is sent again."""
        by_model = {model: {each.name: each for each in self.fleet.members(model)} for model in self.routers}
        for prompt in prompts:
            member = by_model.get(prompt.model, {}).get(prompt.member)
            if member is not None:
                self.routers[prompt.model].heard(prompt.prefixes, member)

    async def close(self) -> None:
        await self._watch.stop()
        await self._scaling.stop()


def _routers(settings: Settings, sent: SentPrompts | None) -> dict[str, Router]:
    default = settings.gateway.routing
    keeps = settings.gateway.session_affinity
    return {
        model.id: Router(
            POLICIES[model.routing or default],
            keeps_sessions=keeps,
            tell=None if sent is None else partial(sent.add, model.id),
        )
        for model in settings.models
    }
