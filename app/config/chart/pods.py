"""The pods of the Ray cluster: the head, the worker groups and what all of them share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from app.config.base import Config
from app.config.chart.kinds import (
    DnsName,
    EnvName,
    EnvValue,
    HttpAddress,
    HubId,
    ImageName,
    Labels,
    Memory,
    ObjectName,
    Quantity,
    Replicas,
    Seconds,
    Storage,
    Texts,
    Verbatim,
    VerbatimList,
)


class PullSecret(Config):
    """A Secret to pull with, as Kubernetes writes it."""

    name: str = Field(min_length=1)
    """The Secret."""


class ImageValues(Config):
    """The image of every pod: Python, the locked packages and Baton's code."""

    repository: Annotated[
        str,
        Field(
            pattern=r"^([a-zA-Z0-9][-.a-zA-Z0-9]*(:[0-9]+)?/)?[a-z0-9]+([-._]+[a-z0-9]+)*(/[a-z0-9]+([-._]+[a-z0-9]+)*)*$"
        ),
    ] = "baton"
    """Where the image lies, without a tag."""
    tag: Annotated[str, Field(pattern=r"^([A-Za-z0-9_][-.A-Za-z0-9_]{0,127})?$")] = ""
    """Its tag; empty: the chart's appVersion. Fix it, and a newer chart alone replaces no cluster."""
    digest: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""
    """Its digest (`sha256:…`), in place of the tag."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When a node pulls it."""
    pull_secrets: list[Annotated[str, Field(min_length=1)] | PullSecret] = Field(default_factory=list)
    """Secrets to pull with: names, or `{name: …}`."""


class Resources(Config):
    """Kubernetes' requests and limits of a container."""

    requests: dict[str, Quantity] = Field(default_factory=dict)
    """What is set aside on the node."""
    limits: dict[str, Quantity] = Field(default_factory=dict)
    """What it may take at most; memory is always limited, since Ray sizes itself by it."""


class PlacementValues(Config):
    """On which nodes a pod runs."""

    node_selector: Labels = Field(default_factory=dict)
    """Labels that the node must have."""
    tolerations: VerbatimList = Field(default_factory=list)
    """Taints that the pods put up with."""
    affinity: Verbatim = Field(default_factory=dict)
    """Affinity, verbatim."""
    priority_class_name: ObjectName = ""
    """Priority class."""


class PodValues(Config):
    """A pod of the Ray cluster."""

    logical_cpus: Annotated[int, Field(ge=0)] | None = None
    """CPUs that Ray hands out; unset: the container's. More than there are is right where stages wait."""
    object_store: Memory = "2Gi"
    """Ray's object store, in shared memory."""
    shared_memory: Memory = "4Gi"
    """Size of /dev/shm: the object store, the arenas of the hand-off and the engines' buffers; part of the memory."""
    ray_start_params: Texts = Field(default_factory=dict)
    """Further parameters of `ray start`, verbatim."""
    ray_labels: Labels = Field(default_factory=dict)
    """Labels of the Ray node, for label selectors of deployments."""
    ray_resources: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Resources of your own that a pod offers, `{chat: 1}`: what asks for one, in an engine's
    `placement_group_config.bundles` or in `ray_actor_options.resources`, runs on these pods only."""
    pod_labels: Labels = Field(default_factory=dict)
    """Further labels of the pods. A change replaces the cluster."""
    pod_annotations: Texts = Field(default_factory=dict)
    """Annotations of the pods. A change replaces the cluster."""
    env: dict[EnvName, EnvValue] = Field(default_factory=dict)
    """Environment of these pods, over the common one."""
    node_selector: Labels = Field(default_factory=dict)
    """Labels that the node must have."""
    tolerations: VerbatimList = Field(default_factory=list)
    """Taints that the pods put up with. A change waits for the next cluster."""
    affinity: Verbatim = Field(default_factory=dict)
    """Affinity, verbatim."""
    topology_spread_constraints: VerbatimList = Field(default_factory=list)
    """How pods spread; without a labelSelector these pods are counted."""
    priority_class_name: ObjectName = ""
    """Priority class."""
    runtime_class_name: ObjectName = ""
    """Runtime class."""
    volumes: VerbatimList = Field(default_factory=list)
    """Further volumes, verbatim."""
    volume_mounts: VerbatimList = Field(default_factory=list)
    """Where they are mounted."""


class GrafanaValues(Config):
    """Where Ray's dashboard finds Grafana and Prometheus, whose graphs it shows; empty: it shows none."""

    host: HttpAddress = ""
    """Grafana's address as the head reaches it, such as `http://grafana.monitoring:3000`."""
    iframe_host: HttpAddress = ""
    """Grafana's address as the browser reaches it; empty: the same."""
    prometheus_host: HttpAddress = ""
    """Prometheus' address as the head reaches it."""
    prometheus_name: str = "Prometheus"
    """Name of the data source in Grafana."""


class HeadValues(PodValues):
    """The head: Ray's control plane, Serve's controller and a proxy."""

    logical_cpus: Annotated[int, Field(ge=0)] | None = 0
    """CPUs that Ray hands out on the head; 0 keeps replicas off it."""
    resources: Resources = Resources(requests={"cpu": "4", "memory": "16Gi"}, limits={"cpu": "4", "memory": "16Gi"})
    """Requests and limits."""
    serves: bool = True
    """Whether the head's proxy takes requests beside the workers'."""
    grafana: GrafanaValues = GrafanaValues()
    """Grafana inside Ray's own dashboard."""


class DeviceValues(Config):
    """A device that a plugin of the cluster offers."""

    resource: str = ""
    """Name of the resource; empty: none."""
    count: Annotated[int, Field(ge=1)] = 1
    """How many a pod takes."""


class HugepagesValues(Config):
    """Huge pages of a pod."""

    size: Literal["2Mi", "1Gi"] = "2Mi"
    """Size of a page."""
    amount: Memory = "0"
    """How much memory of them; 0: none."""


class WorkerGroup(PodValues):
    """A group of equal worker pods. The order of groups is part of the cluster: append new ones at the end."""

    name: DnsName
    """Name of the group."""
    replicas: Replicas = 1
    """Pods at the start; with autoscaling Ray changes it. A change, also of the bounds, waits for the next cluster."""
    min_replicas: Replicas = 1
    """Fewest pods."""
    max_replicas: Replicas = 1
    """Most pods."""
    idle_timeout_seconds: Seconds | None = None
    """How long an idle pod stays; unset: as autoscaling says."""
    num_of_hosts: Annotated[int, Field(ge=1, le=64)] = 1
    """Pods of one replica, for engines that always span several nodes."""
    resources: Resources = Resources(requests={"cpu": "4", "memory": "16Gi"}, limits={"cpu": "4", "memory": "16Gi"})
    """Requests and limits, without the GPUs."""
    gpus: Annotated[int, Field(ge=0, le=16)] = 0
    """GPUs of a pod."""
    gpu_resource: str = "nvidia.com/gpu"
    """Name of the GPU's resource; `nvidia.com/mig-3g.40gb` and the like for slices."""
    accelerator: str = ""
    """Kind of GPU under Ray's name (`H100`), for engines that ask for it by accelerator_type."""
    rdma: DeviceValues = DeviceValues()
    """RDMA devices; asking for some adds the capability IPC_LOCK."""
    hugepages: HugepagesValues = HugepagesValues()
    """Huge pages."""
    index: bool = True
    """Whether the pods mount the index: the retriever runs only in groups that do."""


class SecretKey(Config):
    """A key of a Secret."""

    name: str = Field(min_length=1)
    """The Secret."""
    key: str = Field(min_length=1)
    """Its key."""


class LogCollectorValues(Config):
    """An OpenTelemetry collector beside each Ray container that sends the pod's log files on (docs/logs.md)."""

    enabled: bool = False
    """Whether it runs."""
    image: ImageName = "otel/opentelemetry-collector-contrib:0.165.0"
    """Its image."""
    endpoint: HttpAddress = ""
    """Where logs are sent, over OTLP/HTTP, without `/v1/logs`: `http://collector.monitoring:4318`."""
    config: Verbatim = Field(default_factory=dict)
    """Its whole configuration, in place of the chart's files/log-collector.yaml."""
    resources: Resources = Resources(
        requests={"cpu": "50m", "memory": "128Mi"}, limits={"cpu": "500m", "memory": "256Mi"}
    )
    """Requests and limits."""


class SecurityValues(Config):
    """The pods' security context; as it is, it passes the `restricted` level."""

    run_as_user: Annotated[int, Field(ge=1)] = 1000
    """User of the processes; never root."""
    run_as_group: Annotated[int, Field(ge=1)] = 1000
    """Group of the processes."""
    fs_group: Annotated[int, Field(ge=1)] = 1000
    """Group of mounted volumes."""
    read_only_root_filesystem: bool = True
    """Whether the image is mounted read-only; /tmp, the index and the model cache stay writable."""


class ServiceAccountValues(Config):
    """The service account of the pods."""

    create: bool = True
    """Whether the chart makes it."""
    name: ObjectName = ""
    """Its name; empty: the release's full name, or `default` where none is made."""
    annotations: Texts = Field(default_factory=dict)
    """Annotations, such as a cloud's role."""


class AutoscalerValues(Config):
    """Ray's autoscaler, which adds and removes worker pods by what replicas ask for."""

    enabled: bool = True
    """Whether it runs, as a sidecar of the head. Without it a group has `replicas` pods for good."""
    version: Literal["v1", "v2"] = "v2"
    """Version of the autoscaler."""
    idle_timeout_seconds: Seconds = 300
    """How long a worker pod without work stays."""
    upscaling_mode: Literal["Default", "Conservative", "Aggressive"] = "Default"
    """How boldly it adds pods."""
    resources: Resources = Resources(
        requests={"cpu": "500m", "memory": "512Mi"}, limits={"cpu": "500m", "memory": "512Mi"}
    )
    """Requests and limits of the sidecar."""


class ClaimValues(Config):
    """A volume claim."""

    existing: ObjectName = ""
    """Name of a claim that is there already."""
    size: Storage = "10Gi"
    """Size of the claim that the chart makes."""
    keep: bool = False
    """Whether that claim stays when the release is removed."""
    storage_class: ObjectName = ""
    """Its storage class; empty: the cluster's default."""
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"] = "ReadWriteOnce"
    """Its access mode."""
    single_node: bool = False
    """Whether all pods run on one node (kind, minikube): ReadWriteOnce then does for several."""


class IndexValues(Config):
    """Where a LanceDB index lies that `pipeline.store.uri` names by a path. Other stores need none of it."""

    kind: Literal["claim", "pod"] = "claim"
    """`claim`: a volume that outlives the pods, writable for security.runAsUser or fsGroup. `pod`: the pod's own disk,
    gone with the pod."""
    mount_path: str = Field(default="/data", pattern=r"^/.+")
    """Where it is mounted."""
    claim: ClaimValues = ClaimValues()
    """The claim."""


class CacheImage(Config):
    """An image that holds models (Kubernetes 1.33 and newer mount images as volumes)."""

    reference: str = ""
    """The image."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When a node pulls it."""


class PreloadValues(Config):
    """A Job that fetches models into the cache before the engines need them."""

    enabled: bool = False
    """Whether it runs."""
    models: list[HubId] = Field(default_factory=list)
    """Hugging Face ids to fetch beside those that `models`, the embedder and enabled applications name."""
    resources: Resources = Resources(requests={"cpu": "1", "memory": "2Gi"}, limits={"memory": "4Gi"})
    """Requests and limits of the Job."""


class ModelCacheValues(Config):
    """Where model files lie."""

    kind: Literal["none", "claim", "hostPath", "image"] = "none"
    """`none`: the image's own, or fetched by each pod. `claim`: a volume all pods share. `hostPath`: a folder of the
    nodes. `image`: an image mounted as a volume."""
    mount_path: str = Field(default="/models", pattern=r"^/.+")
    """Where it is mounted; the Hugging Face cache lies in its folder `hub`."""
    claim: ClaimValues = ClaimValues(size="200Gi", access_mode="ReadWriteMany")
    """The claim."""
    host_path: str = ""
    """The folder of the nodes. The `restricted` level forbids it."""
    image: CacheImage = CacheImage()
    """The image."""
    offline: bool = False
    """Whether the hub is never asked: every model must be a path or lie in the cache."""
    mirror: HttpAddress = ""
    """Base URL of a mirror of the hub."""
    preload: PreloadValues = PreloadValues()
    """Fetch models beforehand."""


#: Engines on GPU pods, everything else on one CPU pod that holds the index.
DEFAULT_GROUPS: tuple[WorkerGroup, ...] = (
    WorkerGroup(
        name="gpu-workers",
        replicas=2,
        min_replicas=1,
        max_replicas=4,
        gpus=1,
        resources=Resources(requests={"cpu": "8", "memory": "32Gi"}, limits={"cpu": "8", "memory": "32Gi"}),
        object_store="4Gi",
        shared_memory="8Gi",
        index=False,
    ),
    WorkerGroup(name="cpu-workers"),
)
