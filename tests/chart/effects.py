"""What Serve and KubeRay 1.6 do when one rendered release follows another, by their own rules.

Serve's rules are its own code: the code version of an application, the overrides of its deployments, and which options
replicas take in place. KubeRay's are those of its controller of RayServices: a hash of the cluster without the fields
that it leaves alone, groups that are appended, and a Service that it writes only when the cluster switches.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

from tests.chart.objects import cluster_hash, rayservice, serve

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own import
    from ray.serve._private.application_state import override_deployment_info
    from ray.serve._private.config import DeploymentConfig, ReplicaConfig
    from ray.serve._private.deploy_utils import get_app_code_version
    from ray.serve._private.deployment_info import DeploymentInfo
    from ray.serve._private.version import DeploymentVersion
    from ray.serve.schema import ServeApplicationSchema, ServeDeploySchema

Objects = list[dict[str, Any]]

IN_PLACE = "in place"
STAGE = "restarts the stage"
PIPELINE = "restarts the pipeline"
MODEL = "restarts the model"
APPLICATION = "restarts the application"
STARTS = "starts an application"
ENDS = "ends an application"
CLUSTER = "replaces the cluster"
WAITS = "waits for the next cluster"
BESIDE = "beside the cluster"
JOBS = "runs Jobs"
ANEW = "begins anew"
NOTHING = "nothing"

WORDS = (IN_PLACE, STAGE, PIPELINE, MODEL, APPLICATION, STARTS, ENDS, CLUSTER, WAITS, BESIDE, JOBS, ANEW, NOTHING)


def effects(before: Objects, after: Objects) -> set[str]:
    """Return the words for what the step from one release to another sets off."""
    if rayservice(before)["metadata"]["name"] != rayservice(after)["metadata"]["name"]:
        return {ANEW}
    found = _of_cluster(before, after) | _beside(before, after)
    if CLUSTER not in found:
        found |= _of_serve(serve(before), serve(after))
    elif WAITS in found:
        found.remove(WAITS)
    if len(found) > 1:
        found.discard(IN_PLACE)  # what costs nothing goes without saying beside what costs something
    if not found and _tests(before) != _tests(after):
        found.add(BESIDE)
    return found or {NOTHING}


def _of_cluster(before: Objects, after: Objects) -> set[str]:
    """KubeRay's `shouldPrepareNewCluster`, `shouldUpdateCluster` and `reconcileServices`."""
    old, new = rayservice(before), rayservice(after)
    found = set()
    live = ("upgradeStrategy", "rayClusterDeletionDelaySeconds", "excludeHeadPodFromServeSvc")
    if [old["spec"].get(key) for key in live] != [new["spec"].get(key) for key in live]:
        found.add(IN_PLACE)
    if _orders(old) != _orders(new):
        found.add(IN_PLACE)
    if old["spec"].get("serveService") != new["spec"].get("serveService"):
        found.add(WAITS)
    if cluster_hash(before) == cluster_hash(after):
        if old["spec"]["rayClusterConfig"] != new["spec"]["rayClusterConfig"]:
            found.add(WAITS)  # the running RayCluster is compared by its hash, which says that nothing changed
    elif cluster_hash(before) == cluster_hash(_cut(after, len(old["spec"]["rayClusterConfig"]["workerGroupSpecs"]))):
        found.add(IN_PLACE)  # groups at the end are added to the running cluster
    else:
        found.add(CLUSTER)
    return found


def _orders(service: dict[str, Any]) -> dict[str, str]:
    annotations = service["metadata"].get("annotations", {})
    return {name: value for name, value in annotations.items() if name.startswith("ray.io/")}


def _cut(objects: Objects, groups: int) -> Objects:
    service = copy.deepcopy(rayservice(objects))
    del service["spec"]["rayClusterConfig"]["workerGroupSpecs"][groups:]
    return [service]


def _beside(before: Objects, after: Objects) -> set[str]:
    """What Helm itself changes. The RayService's own labels reach no pod of a running cluster."""
    old, new = _named(before), _named(after)
    found = set()
    for name in old.keys() | new.keys():
        kind, hook = name[0], "helm.sh/hook" in (new.get(name) or old[name])["metadata"].get("annotations", {})
        if kind == "Job" and name not in old:
            found.add(JOBS)
        elif kind == "Job" and name in new:
            # Kubernetes refuses a change of what a Job does.
            assert hook or old[name]["spec"] == new[name]["spec"], name
            found |= {BESIDE} if old[name] != new[name] and not hook else set()
        elif kind not in ("Job", "RayService") and not hook and old.get(name) != new.get(name):
            found.add(BESIDE)
    return found


def _named(objects: Objects) -> dict[tuple[str, str], dict[str, Any]]:
    return {(found["kind"], found["metadata"]["name"]): found for found in objects}


def _tests(objects: Objects) -> Objects:
    return [found for found in objects if found["kind"] == "Pod"]


def _of_serve(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Serve's `apply_app_config` for each application of its configuration."""
    old, new = _applications(before), _applications(after)
    found = {IN_PLACE} if before != after else set()
    found |= {STARTS} if new.keys() - old.keys() else set()
    found |= {ENDS} if old.keys() - new.keys() else set()
    for name in old.keys() & new.keys():
        whole, part = (PIPELINE, STAGE) if name == "pipeline" else _words_of(name)
        if get_app_code_version(old[name]) != get_app_code_version(new[name]):
            found.add(whole)
        elif _restarts_replicas(old[name], new[name]):
            found.add(part)
    return found


def _words_of(name: str) -> tuple[str, str]:
    if name.startswith("model-"):
        return MODEL, MODEL
    return APPLICATION, APPLICATION if name == "engine-loop" else STAGE


def _applications(config: dict[str, Any]) -> dict[str, ServeApplicationSchema]:
    parsed = ServeDeploySchema.model_validate(config)
    for application in parsed.applications:
        application.logging_config = application.logging_config or parsed.logging_config  # as the controller does
    return {application.name: application for application in parsed.applications}


def _restarts_replicas(old: ServeApplicationSchema, new: ServeApplicationSchema) -> bool:
    before, after = _versions(old), _versions(new)
    assert before.keys() == after.keys()
    return any(before[name].requires_actor_restart(after[name]) for name in before)


def _versions(application: ServeApplicationSchema) -> dict[str, DeploymentVersion]:
    """Return the version that each deployment aims at, from code whose options are Serve's defaults."""
    built = {
        found.name: DeploymentInfo(DeploymentConfig(), ReplicaConfig.create(found.name), 0, "", version="code")
        for found in application.deployments
    }
    return {
        name: DeploymentVersion(
            info.version,
            info.deployment_config,
            info.replica_config.ray_actor_options,
            placement_group_bundles=info.replica_config.placement_group_bundles,
            placement_group_strategy=info.replica_config.placement_group_strategy,
            max_replicas_per_node=info.replica_config.max_replicas_per_node,
            route_prefix=info.route_prefix,
        )
        for name, info in override_deployment_info(built, application).items()
    }
