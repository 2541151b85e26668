"""A config file as what Kubernetes needs to run it: a RayService of KubeRay and the objects around it."""

from serve_app.manifests.objects import manifest
from serve_app.manifests.options import HEAD_STORAGE_GATE, Choices, check_reachable, environment_of

__all__ = ["HEAD_STORAGE_GATE", "Choices", "check_reachable", "environment_of", "manifest"]
