"""`helm test` asks a streamed question, checks its citation and reads metrics."""

import pytest

from tests.e2e.kube import RELEASE, helm

pytestmark = pytest.mark.core


def test_helm_test_passes(release):
    said = helm("test", RELEASE, "--timeout", "6m", seconds=420, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    assert "Succeeded" in said.stdout
