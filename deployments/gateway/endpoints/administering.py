"""Makes the endpoints under ``/admin``, but those of feedback."""

from __future__ import annotations

from deployments.gateway.accounts.accounts import GatewayAccounts
from deployments.gateway.endpoints.admin import Admin
from deployments.gateway.endpoints.admin_cache import AdminCache
from deployments.gateway.endpoints.admin_entries import AdminEntries
from deployments.gateway.endpoints.admin_experiments import AdminExperiments
from deployments.gateway.endpoints.admin_keys import AdminKeys
from deployments.gateway.endpoints.admin_limits import AdminLimits
from deployments.gateway.endpoints.admin_plan import AdminPlan, Planner
from deployments.gateway.endpoints.admin_requests import AdminRequests, FindEverywhere
from deployments.gateway.endpoints.admin_usage import AdminUsage
from deployments.gateway.endpoints.admin_users import AdminUsers
from deployments.gateway.experiments.trials import Trials
from deployments.gateway.lookup.store_client import CacheClient
from deployments.gateway.monitoring.latency_page import LatencyPage
from deployments.gateway.monitoring.observers import Observers
from deployments.gateway.placement.engine_status import EngineStatuses
from deployments.gateway.request.exchange import Handler
from deployments.gateway.request.intake import Intake
from serve_app.fleet import FleetTable
from serve_app.model_choice.names import ModelNames
from serve_app.settings import Settings
from serve_app.traffic import Traffic


def admin_handlers(
    settings: Settings,
    names: ModelNames,
    intake: Intake,
    *,
    fleet: FleetTable,
    statuses: EngineStatuses,
    observers: Observers,
    traffic: Traffic,
    trials: Trials,
    cache: CacheClient | None,
    accounts: GatewayAccounts | None,
    planner: Planner | None,
    find_everywhere: FindEverywhere | None,
) -> dict[str, Handler]:
    """Handlers by the names that the table of routes uses."""
    bodies = intake.bodies
    admin = Admin(
        managed=[model.id for model in settings.models if model.engine is not None],
        fleet=fleet,
        engines=statuses,
        latency=LatencyPage(observers.watching.monitor, observers.latency),
        watching=observers.watching,
        traffic=traffic,
    )
    return {
        **admin.handlers,
        **AdminCache(bodies, cache).handlers,
        "admin_entries": AdminEntries(bodies, cache, settings=settings, names=names, offers=intake.offers),
        **AdminExperiments(bodies, trials).handlers,
        **AdminKeys(bodies, accounts, frozenset(names)).handlers,
        "admin_limits": AdminLimits(bodies, accounts, names),
        "admin_plan": AdminPlan(settings, planner),
        "admin_refused_users": AdminUsers(bodies, accounts),
        "admin_requests": AdminRequests(observers.recent, find_everywhere),
        **AdminUsage(accounts).handlers,
    }
