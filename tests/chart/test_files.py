"""Generated files are fresh; values, their comments, their readers and the models say the same."""

import json
import re
import shutil
import subprocess

import pytest
import yaml

from app.config.chart.pods import ImageValues, WorkerGroup
from app.config.chart.values import ChartValues
from app.errors import ConfigError
from scripts import chart_files, chart_rows, manifests
from scripts.helm_render import CHART, SHAPES, shape_values

VALUES = (CHART / "values.yaml").read_text()
TEMPLATES = "\n".join(path.read_text() for path in sorted((CHART / "templates").rglob("*")) if path.is_file())


@pytest.mark.parametrize("source", [chart_files, manifests])
def test_generated_files_are_fresh(source):
    stale = [str(path) for path, text in source.files().items() if not path.exists() or path.read_text() != text]
    assert stale == [], "run `make generate`"


def test_no_manifest_is_left_over():
    known = set(manifests.files()) | {manifests.MANIFESTS / "README.md"}
    assert {path for path in manifests.MANIFESTS.rglob("*") if path.is_file()} == known


def test_values_are_the_defaults_of_the_models():
    assert ChartValues.parse(yaml.safe_load(VALUES), "values") == ChartValues()


def test_every_key_has_a_comment_above_it():
    lines = VALUES.splitlines()
    inside_group = False
    for number, line in enumerate(lines):
        key = re.match(r"( *)([A-Za-z]+):( |$)", line)
        if line.startswith("workerGroups:"):
            inside_group = True
        if key and not (inside_group and line.startswith("  - {")):
            assert lines[number - 1].lstrip(" -").startswith("#"), f"values.yaml:{number + 1}: {line}"
    assert all(row.description for row in chart_rows.rows(ChartValues()))


def test_every_value_stands_in_a_group():
    assert chart_rows.unread() == set()


#: Handed through whole: the applications read what is inside.
VERBATIM = {("settings",), ("pipeline",), ("models",), ("applications",), ("engineLoop", "settings")}


def test_every_value_has_a_reader():
    rows = [row for row in chart_rows.rows(ChartValues()) if not {row.path[:1], row.path[:2]} & VERBATIM]
    group = chart_rows.rows(WorkerGroup(name="x"))
    keys = {row.path[-1] for row in [*rows, *group] if not row.nested}
    # The Service account's and incremental upgrade's blocks are written out whole.
    whole = {"requests", "limits", "key", "maxSurgePercent", "stepSizePercent", "intervalSeconds"}
    unread = sorted(key for key in keys - whole if not re.search(rf"\.{key}\b", TEMPLATES))
    assert unread == []


def test_templates_read_only_values_that_exist():
    schema = json.dumps(chart_files.schema())
    read = set(re.findall(r"\$values\.([a-zA-Z]+)", TEMPLATES))
    top = set(chart_files.schema()["properties"]) | {"environment"}
    assert read - top == set()
    assert schema


@pytest.mark.parametrize("shape", SHAPES)
def test_python_takes_what_the_schema_takes(shape):
    ChartValues.parse(shape_values(shape) | {"pipeline": {}}, shape)


def test_python_refuses_what_the_schema_refuses():
    with pytest.raises(ConfigError, match=r"values\.env\.A: must be text"):
        ChartValues.parse({"env": {"A": 1}}, "values")
    with pytest.raises(ConfigError, match=r"engine: engine_kwarg: there is no such key"):
        ChartValues.parse({"models": {"m": {"engine": {"engine_kwarg": {}}}}}, "values")
    with pytest.raises(ConfigError, match=r"engine_kwargs\.tensor_parallel_size: must be a whole number"):
        ChartValues.parse({"models": {"m": {"engine": {"engine_kwargs": {"tensor_parallel_size": "2"}}}}}, "values")
    with pytest.raises(ConfigError, match="same name"):
        ChartValues.parse({"workerGroups": [{"name": "a"}, {"name": "a"}]}, "values")
    with pytest.raises(ConfigError, match="smoothing_factor is deprecated in Ray: use upscaling_factor"):
        ChartValues.parse(
            {"models": {"m": {"engine": {}, "options": {"autoscaling_config": {"smoothing_factor": 1}}}}}, "values"
        )


def test_the_schema_is_closed_and_of_a_draft_that_every_helm_knows():
    schema = chart_files.schema()
    assert schema["$schema"].startswith("http://json-schema.org/draft-07/")
    objects = [schema, *schema["$defs"].values()]
    assert [
        found.get("title") for found in objects if found.get("properties") and "additionalProperties" not in found
    ] == []


def test_the_chart_says_what_a_registry_wants_to_know():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert {"name", "version", "appVersion", "description", "annotations", "keywords"} <= set(chart)
    images = {entry["image"] for entry in yaml.safe_load(chart["annotations"]["artifacthub.io/images"])}
    values = ChartValues()
    used = {values.gcs_fault_tolerance.redis.image, values.log_collector.image}
    for shape in SHAPES:
        image = ImageValues.parse(shape_values(shape).get("image", {}), shape)
        # An air-gapped registry holds the same images under names of its own.
        used.add(f"{ImageValues().repository}:{image.tag or chart['appVersion']}")
    assert images == used


@pytest.mark.skipif(
    not shutil.which("helm"), reason="no helm on the PATH: the package's engine renders everything else"
)
class TestWithTheProgram:
    """Helm 3 as users have it, beside the Helm 4 of the package."""

    def helm(self, *arguments):
        return subprocess.run(["helm", *arguments], capture_output=True, text=True, check=False)

    @pytest.mark.parametrize("shape", ["cpu", "ha"])
    def test_it_renders_the_same(self, chart, shape):
        values = str(CHART / "ci" / f"{shape}-values.yaml")
        found = self.helm("template", "baton", str(CHART), "-n", "ns", "-f", values)
        assert found.returncode == 0, found.stderr
        rendered = [document for document in yaml.safe_load_all(found.stdout) if document]
        key = str
        assert sorted(map(key, rendered)) == sorted(map(key, chart.objects(shape_values(shape))))

    def test_a_cluster_without_kuberay_is_told_what_to_install(self):
        known = ("--api-versions", "apiregistration.k8s.io/v1", "--kube-version", "v1.34.0")
        found = self.helm("template", "baton", str(CHART), *known)
        assert found.returncode != 0
        assert "install the KubeRay operator first" in found.stderr
        assert self.helm("template", "baton", str(CHART), *known, "--api-versions", "ray.io/v1").returncode == 0

    def test_a_cluster_that_is_too_old_is_told_so(self):
        known = ("--api-versions", "apiregistration.k8s.io/v1", "--api-versions", "ray.io/v1", "--kube-version")
        found = self.helm("template", "baton", str(CHART), *known, "v1.28.3")
        assert "Kubernetes v1.28.3, and the chart needs 1.29 or newer" in found.stderr
        assert "Kubernetes 1.29 or newer" in (CHART / "README.md").read_text()
        mounted = ("--set", "modelCache.kind=image,modelCache.image.reference=models:1")
        assert "1.33 or newer" in self.helm("template", "baton", str(CHART), *known, "v1.32.1", *mounted).stderr
        assert self.helm("template", "baton", str(CHART), *known, "v1.33.0", *mounted).returncode == 0

    def test_it_packages(self, tmp_path):
        found = self.helm("package", str(CHART), "-d", str(tmp_path))
        assert found.returncode == 0, found.stderr
        (archive,) = tmp_path.glob("baton-*.tgz")
        listed = subprocess.run(["tar", "tzf", str(archive)], capture_output=True, text=True, check=True).stdout
        assert "baton/values.schema.json" in listed
        # The shapes that values.yaml and the chart's README name to start from.
        for shape in SHAPES:
            assert f"baton/ci/{shape}-values.yaml" in listed
