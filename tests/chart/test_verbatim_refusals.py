"""What Kubernetes and KubeRay would refuse is refused before they see it: verbatim parts are held to KubeRay's CRD."""

import pytest

from scripts.helm_render import Refused, merged, shape_values
from tests.chart.objects import groups

GROUP = shape_values("cpu")["workerGroups"][0]

WRONG = {
    "misspelt toleration": ({"tolerations": [{"key": "gpu", "operatr": "Exists"}]}, "tolerations/0", "operatr"),
    "affinity of an unknown kind": ({"affinity": {"nodeAffinty": {}}}, "affinity", "nodeAffinty"),
    "spread without a key": ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "Constraints/0", "topologyKey"),
    "volume without a name": ({"volumes": [{"emptyDir": {}}]}, "volumes/0", "name"),
    "volume of an unknown kind": ({"volumes": [{"name": "x", "emptydir": {}}]}, "volumes/0", "emptydir"),
    "mount without a path": ({"volumeMounts": [{"name": "tmp"}]}, "volumeMounts/0", "mountPath"),
}


@pytest.mark.parametrize("place", ["head", "group"])
@pytest.mark.parametrize("case", WRONG)
def test_what_the_api_server_would_refuse(chart, case, place):
    change, *words = WRONG[case]
    values = {"head": change} if place == "head" else {"workerGroups": [merged(GROUP, change)]}
    with pytest.raises(Refused) as refused:
        chart.text(merged(shape_values("cpu"), values))
    told = str(refused.value)
    assert [word for word in words if word not in told] == [], told


def test_a_collections_volume_has_a_source_that_there_is(chart):
    values = {"docs": {"path": "/documents", "volume": {"configmap": {"name": "x"}}}}
    with pytest.raises(Refused, match="configmap"):
        chart.text(merged(shape_values("cpu"), {"collections": values}))


@pytest.mark.parametrize("autoscaling", [{"enabled": False}, {"enabled": True, "version": "v1"}])
def test_a_groups_idle_time_needs_the_autoscaler_that_reads_it(chart, autoscaling):
    values = merged(shape_values("cpu"), {"workerGroups": [merged(GROUP, {"idleTimeoutSeconds": 0})]})
    with pytest.raises(Refused, match="idleTimeoutSeconds is read by Ray's autoscaler v2 alone"):
        chart.text(merged(values, {"autoscaling": autoscaling}))
    (_, group) = groups(chart.objects(merged(values, {"autoscaling": {"enabled": True}})))
    assert group["idleTimeoutSeconds"] == 0


@pytest.mark.parametrize("name", ["ray.io/ft-enabled", "helm.sh/hook"])
def test_no_order_to_kuberay_or_helm_goes_to_every_object(chart, name):
    with pytest.raises(Refused, match=f"commonAnnotations.{name} is an order"):
        chart.text(merged(shape_values("cpu"), {"commonAnnotations": {name: "x"}}))


def test_an_upgrade_in_steps_of_nothing_never_ends(chart):
    with pytest.raises(Refused, match="/upgrade/incremental/stepSizePercent"):
        chart.text(merged(shape_values("cpu"), {"upgrade": {"incremental": {"stepSizePercent": 0}}}))


def test_the_autoscalers_version_has_one_place(chart):
    with pytest.raises(Refused, match=r"head\.env\.RAY_enable_autoscaler_v2: use autoscaling\.version"):
        chart.text(merged(shape_values("cpu"), {"head": {"env": {"RAY_enable_autoscaler_v2": "1"}}}))


def test_what_kubernetes_knows_is_taken(chart):
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    change = {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
        "tolerations": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2}
        ],
        "volumes": [{"name": "nvme", "hostPath": {"path": "/mnt/nvme"}}],
        "volumeMounts": [{"name": "nvme", "mountPath": "/nvme", "readOnly": True}],
    }
    objects = chart.objects(merged(shape_values("cpu"), {"head": change, "workerGroups": [merged(GROUP, change)]}))
    for group in groups(objects):
        spec = group["template"]["spec"]
        assert spec["affinity"] == change["affinity"]
        assert change["volumes"][0] in spec["volumes"]
        assert change["volumeMounts"][0] in spec["containers"][0]["volumeMounts"]
