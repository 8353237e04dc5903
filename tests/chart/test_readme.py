"""The README's commands for a cluster: what they name is there, and what they install renders."""

import re
import shlex

import yaml

from app.ops.doctor.__main__ import main
from scripts.helm_render import CHART, ROOT, Renderer, merged
from tests.chart.objects import pod_specs, rayservice

README = (ROOT / "README.md").read_text("utf-8")
(COMMANDS,) = re.findall(r"^```bash\n(helm .*?)^```", README, re.M | re.S)
OPERATOR, INSTALL, TEST = COMMANDS.splitlines()


def test_the_install_renders_with_the_image_that_is_named():
    words = shlex.split(INSTALL)
    assert words[:4] == ["helm", "install", "baton", "charts/baton"]
    values = yaml.safe_load((ROOT / words[words.index("-f") + 1]).read_text("utf-8"))
    key, repository = words[words.index("--set") + 1].split("=")
    outer, inner = key.split(".")
    objects = Renderer().objects(merged(values, {outer: {inner: repository}}), name=words[2])
    assert rayservice(objects)["metadata"]["name"] == "baton"
    images = {container["image"] for spec in pod_specs(objects) for container in spec["containers"]}
    assert any(image.startswith(f"{repository}:") for image in images)


def test_the_operator_is_the_one_that_the_chart_asks_for():
    assert OPERATOR in (CHART / "templates" / "_validate.tpl").read_text("utf-8")


def test_the_test_asks_the_release_that_was_installed():
    assert shlex.split(TEST)[2:] == ["baton", "-n", "baton"]


def test_the_doctor_takes_what_the_charts_readme_gives_it(tmp_path, monkeypatch, capsys):
    (line,) = re.findall(r"^\$ python -m app\.ops\.doctor (.*)$", (CHART / "README.md").read_text("utf-8"), re.M)
    config = {"apiVersion": "v1", "kind": "Config", "clusters": [], "contexts": [], "users": []}
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.chdir(ROOT)
    # Its arguments and values are right: all that it lacks is a cluster.
    assert main(shlex.split(line)) == 1
    assert "No cluster to look at" in capsys.readouterr().err


def test_the_manifests_that_are_named_are_there():
    for name in re.findall(r"-k (manifests/[\w/-]+)", README):
        assert (ROOT / name / "kustomization.yaml").is_file(), name
    for name in re.findall(r"serve deploy (manifests/[\w/.-]+)", README):
        assert (ROOT / name).is_file(), name
