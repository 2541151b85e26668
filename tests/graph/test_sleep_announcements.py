"""What the autoscaling policy says of sleepers, through a running cluster's own store."""

from __future__ import annotations

import ray

from deployments.engine.sleep.announcements import announce, announced


@ray.remote(num_cpus=0)
def heard(application: str, deployment: str) -> frozenset[str]:
    return announced(application, deployment)


def test_what_is_announced_is_known_in_other_processes_and_replaces_what_was(serve_url: str) -> None:
    assert announced("app", "Engine:quiet") == frozenset()
    announce("app", "Engine:m", ["r2", "r1"])
    assert ray.get(heard.remote("app", "Engine:m")) == {"r1", "r2"}
    announce("app", "Engine:m", [])
    assert ray.get(heard.remote("app", "Engine:m")) == frozenset()


def test_deployments_of_one_name_in_two_applications_are_told_apart(serve_url: str) -> None:
    announce("one", "Engine:m", ["a"])
    announce("other", "Engine:m", ["b"])
    assert announced("one", "Engine:m") == {"a"}
