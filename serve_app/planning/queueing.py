"""Waiting times by formula: Erlang C for M/M/c, with Allen and Cunneen's correction for other variances.

Sources: A. K. Erlang (1917); the recursion over Erlang B as in L. Kleinrock, "Queueing Systems" I (1975),
3.6; A. O. Allen, "Probability, Statistics and Queueing Theory" (1978), for the Allen-Cunneen approximation
``W = W(M/M/c) x (ca2 + cs2) / 2``, where ``ca2`` and ``cs2`` are squared coefficients of variation.
"""

from __future__ import annotations

import math


def erlang_c(servers: int, offered: float) -> float:
    """The probability that a request waits, with ``offered`` = arrival rate x service time, in Erlang.

    1.0 if the load is at least the number of servers: the queue grows without bound.
    """
    if offered >= servers:
        return 1.0
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    return blocked / (1.0 - offered / servers * (1.0 - blocked))


def mean_wait_s(
    rate: float, service_s: float, servers: int, arrival_scv: float = 1.0, service_scv: float = 1.0
) -> float:
    """Mean time in the queue (Allen-Cunneen); infinite if the load is too large. With 1.0 and 1.0 it is
    M/M/c."""
    offered = rate * service_s
    if offered >= servers:
        return math.inf
    return erlang_c(servers, offered) * service_s / (servers - offered) * (arrival_scv + service_scv) / 2.0
