"""How many replicas a model needs to meet its latency objectives: pure policy, no clock, no Ray.

``Autoscaler.decide`` is called about once a second with the load of one model's engines and returns how many
replicas to wake, start, put to sleep or stop. Requests that the cache answers never reach an engine, so they
are not part of that load. ``deployments.engine.autoscaling`` calls it for Serve. Engines measure an
``EngineSpeed``, gateways count a ``Demand``, and ``metrics`` carries both to the policy.

There are eight reasons for a change, because an operator answers most of them with another setting. Twelve
constants stay, because without any of them a simulated case is worse, a replay has no bound, or a test fails
that has the small burst or the last client that two of them are for (docs/benchmarks.md).
"""

from serve_app.autoscaling.arrivals import Arrivals, Bin
from serve_app.autoscaling.capacity import Capacity
from serve_app.autoscaling.demand import Arrival, Demand, GatewayLoad, GatewayReports
from serve_app.autoscaling.increments import Increments
from serve_app.autoscaling.load import FleetLoad, ReplicaLoad
from serve_app.autoscaling.measuring import EngineSpeed
from serve_app.autoscaling.policy import Autoscaler, Decision, Reason
from serve_app.autoscaling.rest import Rest, Sleeper
from serve_app.autoscaling.rules import ScalingRules
from serve_app.autoscaling.start_time import StartTime

__all__ = [
    "Arrival",
    "Arrivals",
    "Autoscaler",
    "Bin",
    "Capacity",
    "Decision",
    "Demand",
    "EngineSpeed",
    "FleetLoad",
    "GatewayLoad",
    "GatewayReports",
    "Increments",
    "Reason",
    "ReplicaLoad",
    "Rest",
    "ScalingRules",
    "Sleeper",
    "StartTime",
]
