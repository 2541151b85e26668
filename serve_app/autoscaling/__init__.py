"""How many replicas a model needs for what its users feel: pure policy, no clock, no Ray.

``Autoscaler.decide`` is asked about once a second with the load of one model's engines (what the cache
answers never reaches them, so it is not in it) and says how many replicas to wake, start, put to sleep or
stop. ``deployments.engine.autoscaling`` asks it for Serve; engines measure an ``EngineSpeed``, gateways
count a ``Demand``, and ``metrics`` carries both there.
"""

from serve_app.autoscaling.arrivals import Arrivals, Bin
from serve_app.autoscaling.capacity import Capacity
from serve_app.autoscaling.demand import Asked, Demand, GatewayLoad, GatewayReports
from serve_app.autoscaling.increments import Increments
from serve_app.autoscaling.load import FleetLoad, ReplicaLoad
from serve_app.autoscaling.measuring import EngineSpeed
from serve_app.autoscaling.policy import Autoscaler, Decision, Reason
from serve_app.autoscaling.rest import Rest, Sleeper
from serve_app.autoscaling.rules import ScalingRules
from serve_app.autoscaling.start_time import StartTime

__all__ = [
    "Arrivals",
    "Asked",
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
