"""What every endpoint asks of a request: who sends it, its body and images, what may be asked for."""

from __future__ import annotations

import os

from deployments.gateway.request.authentication import Authenticator
from deployments.gateway.request.bodies import Bodies
from deployments.gateway.request.gate import Gate, SignedIn
from deployments.gateway.request.holdings import Quotas
from deployments.gateway.request.images import Images, IsPublic
from deployments.gateway.request.key_watch import KeyWatch
from deployments.platform.door_secret import load_door_secret
from deployments.platform.steady_clock import SteadyClock
from serve_app.accounts.refused import RefusedUsers
from serve_app.fleet import FleetTable
from serve_app.model_choice.names import ModelNames
from serve_app.model_choice.offers import Offers
from serve_app.request.admin_token import AdminToken
from serve_app.request.auth import KeySources, ManagedKeys
from serve_app.request.prefix_salt import PrefixSalts
from serve_app.request.tenant_marks import TenantMarks
from serve_app.settings import Settings


class Intake:
    """Made inside a running event loop; ``close`` ends it. ``keys`` is ``None`` without API keys; ``managed``
    are those that are made at run time, ``quotas`` what this gateway has of their limits,
    ``refused`` whom it lets in nowhere."""

    def __init__(
        self,
        settings: Settings,
        names: ModelNames,
        fleet: FleetTable,
        marks: TenantMarks,
        *,
        keys: KeySources | None,
        signed_in: SignedIn,
        managed: ManagedKeys | None,
        quotas: Quotas | None,
        refused: RefusedUsers | None,
        admin_token: AdminToken | None,
        is_public: IsPublic,
    ) -> None:
        self.has_keys = keys is not None
        shared = settings.gateway.share_prefixes
        auth = Authenticator(None if keys is None else keys.ring(managed), admin_token)
        secret = load_door_secret(os.environ)
        self.gate = Gate(auth, signed_in, SteadyClock(), secret, quotas, refused=refused)
        self.bodies = Bodies(settings.limits)
        self.images = Images(settings.media, is_public)
        self.offers = Offers(settings, names, fleet, separates=self.has_keys and not shared)
        self.salts = PrefixSalts(marks, shared=shared, has_keys=self.has_keys)

        def changed(sources: KeySources) -> None:
            auth.keys = sources.ring(managed)

        self._keys = None if keys is None or keys.file is None else KeyWatch(keys, changed)

    async def close(self) -> None:
        if self._keys is not None:
            await self._keys.stop()
