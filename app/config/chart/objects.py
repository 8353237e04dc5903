"""What stands around the Ray cluster: the way in, fault tolerance, upgrades, policies and Jobs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from app.config.base import Config
from app.config.chart.kinds import (
    HostName,
    HostNameOrNone,
    HttpAddress,
    ImageName,
    NamespaceName,
    ObjectName,
    Seconds,
    SomePercent,
    Storage,
    Texts,
    VerbatimList,
)
from app.config.chart.pods import PlacementValues, Resources, SecretKey
from app.config.rollout import Plan


class ServiceValues(Config):
    """The Service `<name>-serve-svc` that KubeRay points at pods that serve."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Type of the Service."""
    annotations: Texts = Field(default_factory=dict)
    """Annotations, such as a cloud's load balancer wants."""


class IngressValues(Config):
    """An Ingress to the gateway."""

    enabled: bool = False
    """Whether there is one."""
    class_name: ObjectName = ""
    """Ingress class."""
    host: HostNameOrNone = ""
    """Host name."""
    path: str = Field(default="/", pattern=r"^/")
    """Path prefix. The gateway's own paths begin at /: another prefix has to be taken off by the controller."""
    annotations: Texts = Field(default_factory=dict)
    """Annotations. Turn buffering off and let a response take as long as settings.limits.maxTimeoutSeconds."""
    tls_secret: ObjectName = ""
    """Secret of type kubernetes.io/tls for the host; empty: no TLS."""


class GatewayObject(Config):
    """A Gateway of our own for the route."""

    create: bool = False
    """Whether the chart makes it."""
    class_name: ObjectName = ""
    """Gateway class."""
    tls_secret: ObjectName = ""
    """Secret of type kubernetes.io/tls; empty: plain HTTP."""


class HttpRouteValues(Config):
    """An HTTPRoute of the Gateway API to the gateway."""

    enabled: bool = False
    """Whether there is one."""
    parent_refs: VerbatimList = Field(default_factory=list)
    """Gateways to attach to; empty: the one that `gateway` makes."""
    hostnames: list[HostName] = Field(default_factory=list)
    """Host names."""
    annotations: Texts = Field(default_factory=dict)
    """Annotations."""
    gateway: GatewayObject = GatewayObject()
    """A Gateway of our own."""


class GatewayValues(Config):
    """The way in."""

    service: ServiceValues = ServiceValues()
    """The Service. KubeRay takes a change over with the next cluster only."""
    ingress: IngressValues = IngressValues()
    """An Ingress."""
    http_route: HttpRouteValues = HttpRouteValues()
    """An HTTPRoute."""


class GrpcValues(Config):
    """gRPC beside HTTP, on every pod that serves."""

    enabled: bool = False
    """Whether the gateway is reached over gRPC as well, by the Service `<name>-grpc`."""
    port: Annotated[int, Field(ge=1024, le=65535)] = 9000
    """Its port, in pods and of the Service."""


class RedisServer(PlacementValues):
    """A Redis of our own."""

    enabled: bool = False
    """Whether the chart runs one."""
    image: ImageName = "redis:7-bookworm"
    """Its image."""
    storage: Storage = "2Gi"
    """Size of its volume."""
    storage_class: ObjectName = ""
    """Storage class of its volume; empty: the cluster's default."""
    resources: Resources = Resources(requests={"cpu": "100m", "memory": "256Mi"}, limits={"memory": "1Gi"})
    """Requests and limits."""


class FaultToleranceValues(Config):
    """Keeps the cluster's state in Redis, so that it serves on while a lost head comes back."""

    enabled: bool = False
    """Whether the state is kept."""
    redis_address: Annotated[str, Field(pattern=r"^((rediss?://)?[^\s/]+:[0-9]+)?$")] = ""
    """`host:port` of a Redis; empty where `redis.enabled` runs one."""
    username: str = ""
    """User of that Redis; empty: none."""
    password_secret: SecretKey | None = None
    """Secret with its password. A Redis of our own always has one."""
    redis: RedisServer = RedisServer()
    """A Redis of our own."""


class IncrementalValues(Config):
    """An upgrade in steps, by KubeRay and the Gateway API."""

    gateway_class_name: ObjectName = ""
    """Gateway class that KubeRay's own Gateway is of."""
    max_surge_percent: SomePercent = 100
    """Share of the capacity that the new cluster may take at a time."""
    step_size_percent: SomePercent = 10
    """Share of the traffic that moves at a step."""
    interval_seconds: Annotated[int, Field(ge=1)] = 30
    """Time between steps."""


class UpgradeValues(Config):
    """What happens when the cluster has to be replaced, and how pods end."""

    type: Literal["NewCluster", "NewClusterWithIncrementalUpgrade", "None"] = "NewCluster"
    """`NewCluster`: a second cluster starts beside the old one and takes over when it serves; it needs as many GPUs
    again. `NewClusterWithIncrementalUpgrade`: traffic moves in steps. `None`: nothing is replaced by itself."""
    incremental: IncrementalValues = IncrementalValues()
    """For NewClusterWithIncrementalUpgrade."""
    operator_feature_gates: list[str] = Field(default_factory=list)
    """Feature gates that your KubeRay operator runs with."""
    cluster_deletion_delay_seconds: Seconds = 600
    """How long the old cluster finishes its requests; not less than settings.limits.maxTimeoutSeconds."""
    drain_seconds: Annotated[int, Field(ge=0, le=3600)] = 60
    """How long a Ray node that stops lets its replicas finish. A change replaces the cluster."""
    termination_grace_period_seconds: Annotated[int, Field(ge=1, le=7200)] = 120
    """When a stopping pod is killed; more than drainSeconds. A change replaces the cluster."""
    initializing_timeout_seconds: Seconds = 7200
    """How long a first start may take; after it KubeRay gives up for good. 0: no limit."""


class NetworkPolicyValues(Config):
    """Who may reach the pods."""

    enabled: bool = False
    """Whether there is a policy. Pods of one release always reach each other."""
    operator_namespace: NamespaceName = "kuberay-system"
    """Namespace of the KubeRay operator, which asks the head's dashboard."""
    gateway_from: VerbatimList = Field(default_factory=list)
    """Who may ask the gateway; empty: everybody in the cluster."""
    metrics_from: VerbatimList = Field(default_factory=list)
    """Who may scrape metrics; empty: nobody."""
    egress: bool = False
    """Whether egress is limited too: to the release, DNS and `egressTo`."""
    egress_to: VerbatimList = Field(default_factory=list)
    """Further rules of egress, verbatim: object storage, a vector store, the model hub, the API server."""


class DisruptionValues(Config):
    """Keeps voluntary evictions away from pods that serve."""

    enabled: bool = False
    """Whether there are budgets: for each worker group, and for the head unless gcsFaultTolerance survives its loss."""
    max_unavailable: Annotated[int, Field(ge=0)] = 1
    """Pods of a worker group that may be evicted at once when it has its fewest: what is above that may go as well."""


class AuthValues(Config):
    """The Secrets of API keys (docs/keys.md); `settings.auth.enabled` turns keys on."""

    existing_secret: str = ""
    """Secret with the file of keys, mounted for the gateways; empty: none. A changed Secret is read live, another one
    replaces the cluster."""
    key: str = Field(default="keys.yaml", min_length=1)
    """Its key that holds the file."""
    client_secret: SecretKey | None = None
    """Secret that holds what opens one of those keys, for `helm test`, batches, and the Jobs that fill the index
    (ingest)."""


class CollectionValues(Config):
    """Documents to index once the gateway serves."""

    path: str = Field(pattern=r"^[^-]")
    """Folder or file in the image, or in `volume`."""
    volume: dict[str, object] | None = None
    """Source of a volume (`configMap`, `persistentVolumeClaim`, …), verbatim, mounted at `mountPath`."""
    mount_path: str = Field(default="/documents", pattern=r"^/.+")
    """Where the volume is mounted."""


class JobValues(PlacementValues):
    """On which nodes Jobs and the Pod of `helm test` run."""


class DoctorValues(Config):
    """A Job before the install that tells whether the cluster has what these values need."""

    enabled: bool = False
    """Whether it runs; an install stops where it finds a fault."""
    resources: Resources = Resources(requests={"cpu": "100m", "memory": "256Mi"}, limits={"memory": "1Gi"})
    """Requests and limits of the Job."""


class RolloutValues(Config):
    """A Job that moves traffic to a canary in steps (docs/rollout.md). A change of it is another Job."""

    enabled: bool = False
    """Whether there is one."""
    plan: Plan | None = None
    """From which variant to which, in what steps, judged by what."""
    prometheus_url: HttpAddress = ""
    """Address of the Prometheus that scrapes the release; its bearer token, if any, is `secretEnv.PROMETHEUS_TOKEN`."""
    resources: Resources = Resources(requests={"cpu": "50m", "memory": "128Mi"}, limits={"memory": "512Mi"})
    """Requests and limits of the Job."""


class TestValues(Config):
    """The Pod of `helm test`."""

    question: str = "What does the guardrail do?"
    """What is asked."""
    expect_citation: bool = True
    """Whether the answer must cite a passage."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 300
    """How long the test may take."""
