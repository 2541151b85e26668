"""What engines report as Serve's custom metrics (names to numbers), and how the policy reads it.

A replica reports its own load and the last report of each gateway: gateways have no other way to reach the
policy. Every gateway reports to all replicas, so only its newest report counts, whichever replica passes it
on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace

from serve_app.autoscaling.demand import GatewayLoad
from serve_app.autoscaling.load import ReplicaLoad

Metrics = Mapping[str, float]

OWN = tuple(each.name for each in fields(ReplicaLoad))
OF_A_GATEWAY = tuple(each.name for each in fields(GatewayLoad) if each.name != "gateway")
GATEWAY = re.compile(r"gateway\.(?P<gateway>.+)\.(?P<name>[a-z_]+)")


def engine_metrics(load: ReplicaLoad, gateways: Iterable[GatewayLoad]) -> dict[str, float]:
    """One replica's metrics. Unknown values are left out."""
    metrics = {name: float(value) for name, value in asdict(load).items() if value is not None}
    for each in gateways:
        for name in OF_A_GATEWAY:
            metrics[f"gateway.{each.gateway}.{name}"] = float(getattr(each, name))
    return metrics


def replica_loads(reports: Sequence[Metrics]) -> tuple[ReplicaLoad, ...]:
    """The replicas' own loads. A replica that has not reported yet counts as empty, with the capacity of the
    first one that has."""
    loads = [_own(report) for report in reports]
    capacity = next((load.capacity for load, report in zip(loads, reports, strict=True) if report), None)
    if capacity is None:
        return tuple(loads)
    return tuple(
        load if report else replace(load, capacity=capacity)
        for load, report in zip(loads, reports, strict=True)
    )


def _own(report: Metrics) -> ReplicaLoad:
    return ReplicaLoad(**{name: report[name] for name in OWN if name in report})


def gateway_loads(reports: Iterable[Metrics]) -> tuple[GatewayLoad, ...]:
    """Each gateway's newest report."""
    newest: dict[str, GatewayLoad] = {}
    for report in reports:
        for gateway, values in _by_gateway(report).items():
            load = GatewayLoad(gateway=gateway, **{name: values[name] for name in OF_A_GATEWAY})  # type: ignore[arg-type]  # counts come as floats
            if gateway not in newest or load.number > newest[gateway].number:
                newest[gateway] = load
    return tuple(newest.values())


def _by_gateway(report: Metrics) -> dict[str, Metrics]:
    """Values by name for each gateway whose report is complete."""
    found: dict[str, dict[str, float]] = {}
    for key, value in report.items():
        match = GATEWAY.fullmatch(key)
        if match is not None:
            found.setdefault(match["gateway"], {})[match["name"]] = value
    return {gateway: values for gateway, values in found.items() if values.keys() >= set(OF_A_GATEWAY)}
