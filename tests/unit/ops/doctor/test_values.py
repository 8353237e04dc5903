"""How the doctor reads values: several files, and those that it cannot read."""

import pytest
import yaml

from app.ops.doctor.__main__ import main
from tests.unit.ops.doctor.conftest import shape


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- a list", "values are a map of keys"),
        ("a: [", "cannot be read"),
        ("workerGroup: []", "values.workerGroup: there is no such key"),
    ],
)
def test_values_that_are_none(tmp_path, capsys, text, told):
    path = tmp_path / "values.yaml"
    path.write_text(text)
    assert main(["--values", str(path)]) == 2
    assert told in capsys.readouterr().err


def test_later_values_go_over_earlier_ones(cluster, hub, tmp_path, capsys):
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(yaml.safe_dump(shape(hub, image={"repository": "baton", "tag": "9"})))
    second.write_text("image: {repository: registry.example.com/baton, tag: null}\nglobal: {x: 1}\n")
    assert main(["--values", str(first), "--values", str(second)]) == 0, capsys.readouterr().out
