"""Makes tests/chart/kuberay/*.json from KubeRay's CRDs: what the API server checks, closed and without prose.

    python -m scripts.kuberay_schema 1.6.0 …/ray-operator/config/crd/bases/ray.io_{rayservices,rayjobs,raycronjobs}.yaml

The CRDs stand in the repository ray-project/kuberay under the tag of that version.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import yaml

TARGET = Path(__file__).resolve().parents[1] / "tests" / "chart" / "kuberay" / "rayservice.json"
_KEPT = ("type", "enum", "format", "pattern", "minimum", "maximum", "minLength", "maxLength", "required", "maxItems")
_SHARED_BYTES = 400


def pruned(node: dict[str, Any]) -> dict[str, Any]:
    """Return a structural schema as JSON schema: no descriptions and defaults, no unknown keys."""
    out = {key: node[key] for key in _KEPT if key in node and key != "format"}
    if node.get("x-kubernetes-int-or-string"):
        out["type"] = ["integer", "string"]
    if "properties" in node:
        out["properties"] = {name: pruned(child) for name, child in node["properties"].items()}
        if not node.get("x-kubernetes-preserve-unknown-fields") and not node.get("x-kubernetes-embedded-resource"):
            out["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            out[key] = pruned(node[key])
    return out


def shared(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Replace large parts by references: the pod template stands in the CRD four times."""
    out = dict(node)
    if "properties" in node:
        out["properties"] = {name: shared(child, definitions) for name, child in node["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            out[key] = shared(node[key], definitions)
    text = json.dumps(out, sort_keys=True)
    if len(text) < _SHARED_BYTES:
        return out
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    definitions[name] = out
    return {"$ref": f"#/$defs/{name}"}


def main(arguments: list[str]) -> int:
    """Write the schemas."""
    version, *paths = arguments
    for path in paths:
        crd = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        served = next(entry for entry in crd["spec"]["versions"] if entry["name"] == "v1")
        raw = served["schema"]["openAPIV3Schema"]
        definitions: dict[str, Any] = {}
        kind = crd["spec"]["names"]["kind"]
        found = {
            "$comment": f"KubeRay {version}, the spec of a {kind} (ray.io/v1), by scripts/kuberay_schema.py",
            **shared(pruned(raw["properties"]["spec"]), definitions),
            "$defs": definitions,
        }
        text = json.dumps(found, sort_keys=True, indent=0) + "\n"
        (TARGET.parent / f"{kind.lower()}.json").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
