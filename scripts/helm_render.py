"""Renders the chart in this process, with the engine of Helm 4 that the package helm-python-sdk carries."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import helm_python as helm
import yaml

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "baton"
SHAPES = tuple(sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml")))

#: The parser in C is eight times as fast.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Refused(Exception):
    """Helm refused the values; the text is what a user would read."""


class Renderer:
    """One chart folder, loaded once."""

    def __init__(self, folder: Path = CHART) -> None:
        self._chart = helm.Chart.load(folder)
        self._known: dict[str, dict[str, str]] = {}

    def text(self, values: dict[str, Any], *, name: str = "baton", namespace: str = "ns") -> dict[str, str]:
        """Return the rendered templates by path. Raises :class:`Refused`."""
        key = json.dumps([values, name, namespace])
        if key not in self._known:
            try:
                self._known[key] = self._chart.render(values, name=name, namespace=namespace, is_install=True)
            except helm.HelmError as error:
                raise Refused(str(error)) from None
        return self._known[key]

    def objects(self, values: dict[str, Any], *, name: str = "baton", namespace: str = "ns") -> list[dict[str, Any]]:
        """Return the rendered objects in the order of their templates. Raises :class:`Refused`."""
        texts = self.text(values, name=name, namespace=namespace)
        found = []
        for path in sorted(texts):
            if path.endswith(".yaml"):
                found += [document for document in yaml.load_all(texts[path], Loader=_LOADER) if document]
        return found


def shape_values(shape: str) -> dict[str, Any]:
    """Return the values of an install shape."""
    found: dict[str, Any] = yaml.safe_load((CHART / "ci" / f"{shape}-values.yaml").read_text(encoding="utf-8"))
    return found


def merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``change`` laid over it, as Helm does with a second values file."""
    out = copy.deepcopy(base)
    for key, value in change.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = merged(out[key], value) if both else copy.deepcopy(value)
    return out
