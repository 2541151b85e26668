"""A server that stands where a cluster would, so that the real clients' commands run: kubectl's and Helm's.

It keeps objects in memory, knows the kinds of a manifest and of Helm's releases, and refuses what Kubernetes'
and its operators' schemas refuse. It schedules nothing, and no operator runs.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from support import kubernetes_protobuf
from support.kubernetes_schemas import faults

Json = dict[str, Any]
Key = tuple[str, str | None, str]
"""Kind, namespace, name."""

VERSION = {"major": "1", "minor": "32", "gitVersion": "v1.32.0", "platform": "linux/amd64"}
VERBS = ["create", "delete", "get", "list", "patch", "update"]
MERGES = ("application/merge-patch+json", "application/strategic-merge-patch+json")
REASONS = {404: "NotFound", 409: "AlreadyExists", 415: "UnsupportedMediaType", 422: "Invalid"}
NO_SCHEMAS: Json = {}
"""An empty document for clients that would check objects by themselves: the server checks them."""


@dataclass(frozen=True)
class Resource:
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    checked: bool = True
    """There is a schema."""

    @property
    def root(self) -> str:
        return f"/{'apis' if '/' in self.version else 'api'}/{self.version}"


RESOURCES = (
    Resource("v1", "namespaces", "Namespace", namespaced=False, checked=False),
    Resource("v1", "secrets", "Secret", checked=False),
    Resource("v1", "configmaps", "ConfigMap"),
    Resource("v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    Resource("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy"),
    Resource("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget"),
    Resource("ray.io/v1", "rayservices", "RayService"),
    Resource("monitoring.coreos.com/v1", "podmonitors", "PodMonitor"),
)


class Refused(Exception):
    def __init__(self, status: int, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.status, self.details = status, details

    def body(self) -> Json:
        failure = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": self.status}
        reason = REASONS.get(self.status, "BadRequest")
        return {**failure, "message": str(self), "reason": reason, "details": self.details}


@dataclass
class Cluster:
    """``without``: kinds that it does not know, as a cluster without their operator."""

    without: Sequence[str] = ()
    url: str = ""
    objects: dict[Key, Json] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    """Paths of requests that changed something."""

    def __post_init__(self) -> None:
        self.resources = [each for each in RESOURCES if each.kind not in self.without]
        default = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
        self.objects["Namespace", None, "default"] = default

    def of_kind(self, kind: str) -> dict[str, Json]:
        return {name: each for (known, _, name), each in self.objects.items() if known == kind}

    def kubeconfig(self, file: Path) -> Path:
        clusters = [{"name": "here", "cluster": {"server": self.url}}]
        contexts = [{"name": "here", "context": {"cluster": "here", "user": "anyone"}}]
        known = {"clusters": clusters, "contexts": contexts, "users": [{"name": "anyone", "user": {}}]}
        file.write_text(yaml.safe_dump({"kind": "Config", "current-context": "here", **known}))
        return file

    def answer(self, method: str, target: str, media: str, body: bytes) -> tuple[int, Json]:
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        if (about := self._about(path)) is not None:
            return 200, about
        resource, namespace, name = self._resolve(path)
        if method == "GET" and name is None:
            return 200, self._list(resource, namespace, query)
        protobuf = media == kubernetes_protobuf.MEDIA
        given = kubernetes_protobuf.read(body) if protobuf else json.loads(body or "{}")
        if method == "POST":
            return 201, self._create(resource, namespace, given, path)
        key = (resource.kind, namespace, name or "")
        if key not in self.objects:
            raise Refused(404, f'{resource.plural} "{name}" not found')
        present = self.objects[key]
        if method == "DELETE":
            self.changes.append(path)
            return 200, self.objects.pop(key)
        if method == "PATCH":
            return 200, self._keep(resource, key, merged(present, patch_of(media, given)), path)
        return 200, self._keep(resource, key, given, path) if method == "PUT" else present

    def _about(self, path: str) -> Json | None:
        """What clients ask to find out which kinds there are."""
        if path == "/openapi/v2":
            return NO_SCHEMAS
        if path == "/version":
            return VERSION
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            versions = sorted({each.version for each in self.resources if "/" in each.version})
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(each) for each in versions]}
        listed = [
            {"name": each.plural, "kind": each.kind, "namespaced": each.namespaced, "verbs": VERBS}
            for each in self.resources
            if each.root == path
        ]
        version = path.split("/", 2)[-1]
        about = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version}
        return {**about, "resources": listed} if listed else None

    def _resolve(self, path: str) -> tuple[Resource, str | None, str | None]:
        """Resource, namespace and name of a path, where it has these."""
        for resource in self.resources:
            if not path.startswith(f"{resource.root}/"):
                continue
            parts, namespace = path.removeprefix(f"{resource.root}/").split("/"), None
            if resource.namespaced and parts[0] == "namespaces" and len(parts) > 2:
                namespace, parts = parts[1], parts[2:]
            if parts[0] == resource.plural and len(parts) < 3:
                return resource, namespace, parts[1] if parts[1:] else None
        raise Refused(404, "the server could not find the requested resource")

    def _list(self, resource: Resource, namespace: str | None, query: Mapping[str, list[str]]) -> Json:
        labels, fields = _selected(query.get("labelSelector")), _selected(query.get("fieldSelector"))
        items = [
            each
            for (kind, where, name), each in self.objects.items()
            if kind == resource.kind
            and namespace in (None, where)
            and labels.items() <= each["metadata"].get("labels", {}).items()
            and fields.get("metadata.name", name) == name
        ]
        return {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.version,
            "metadata": {},
            "items": items,
        }

    def _create(self, resource: Resource, namespace: str | None, given: Json, path: str) -> Json:
        key = (resource.kind, namespace, given["metadata"]["name"])
        if resource.namespaced and ("Namespace", None, namespace) not in self.objects:
            raise Refused(404, f'namespaces "{namespace}" not found')
        if key in self.objects:
            raise Refused(409, f'{resource.plural} "{key[2]}" already exists')
        made = {"uid": str(uuid.uuid4()), "creationTimestamp": "2026-01-01T00:00:00Z"}
        given["metadata"] |= made if namespace is None else {**made, "namespace": namespace}
        if resource.kind == "PersistentVolumeClaim":
            given["spec"] = {"storageClassName": "standard", "volumeName": made["uid"]} | given["spec"]
        return self._keep(resource, key, given, path)

    def _keep(self, resource: Resource, key: Key, given: Json, path: str) -> Json:
        about = (given.get("apiVersion"), given.get("kind"), given["metadata"]["name"])
        if about != (resource.version, resource.kind, key[2]):
            raise Refused(400, f"{path} does not take {about}")
        wrong = faults(given) if resource.checked else []
        present = self.objects.get(key)
        if (
            present is not None
            and resource.kind == "PersistentVolumeClaim"
            and _fixed(present) != _fixed(given)
        ):
            wrong.append("spec: Forbidden: it is immutable after creation except resources.requests")
        if wrong:
            causes = [{"message": each, "reason": "FieldValueInvalid"} for each in wrong]
            details = {"kind": resource.kind, "name": key[2], "causes": causes}
            raise Refused(422, f'{resource.kind} "{key[2]}" is invalid: {"; ".join(wrong)}', details)
        if present == given:
            return present  # what changes nothing is no new version
        self.changes.append(path)
        given["metadata"]["resourceVersion"] = str(len(self.changes))
        self.objects[key] = given
        return given


def _group(version: str) -> Json:
    name, number = version.split("/")
    known = {"groupVersion": version, "version": number}
    return {"name": name, "versions": [known], "preferredVersion": known}


def _selected(selector: list[str] | None) -> dict[str, str]:
    """Of a selector with `=`, the only operator that the clients use here."""
    return dict(each.split("=", 1) for each in (selector or [""])[0].split(",") if each)


def _fixed(document: Json) -> Json | None:
    """What nobody may change."""
    return {**document["spec"], "resources": 0} if document["kind"] == "PersistentVolumeClaim" else None


def patch_of(media: str, given: Json) -> Json:
    """Lists are replaced: right for merge patches, and for strategic ones of the kinds here, whose lists have
    no merge keys. A patch that says how to merge a list is refused, not misread."""
    if media not in MERGES or '"$' in json.dumps(given):
        raise Refused(415, f"no patches of {media} with directives")
    return given


def merged(present: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    old = present if isinstance(present, Mapping) else {}
    changed = {name: merged(old.get(name), value) for name, value in patch.items() if value is not None}
    return {name: value for name, value in old.items() if name not in patch} | changed


@contextmanager
def kubernetes_api(without: Sequence[str] = ()) -> Iterator[Cluster]:
    cluster, lock = Cluster(without), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            media = self.headers.get("Content-Type", "").split(";")[0]
            try:
                with lock:
                    status, found = cluster.answer(self.command, self.path, media, body)
            except Refused as error:
                status, found = error.status, error.body()
            text = b"" if found is NO_SCHEMAS else json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            """Nothing: a test prints what the client says."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    cluster.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield cluster
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
