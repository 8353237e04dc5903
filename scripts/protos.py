"""Compiles app/protos/*.proto into the Python that is committed beside it."""

from __future__ import annotations

import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROTOS = ROOT / "app" / "protos"


def files() -> dict[Path, str]:
    """Return the generated modules, their types included, by path."""
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        sources = [str(found.relative_to(ROOT)) for found in sorted(PROTOS.glob("*.proto"))]
        well_known = Path(protoc.__file__).parent / "_proto"
        options = [
            f"-I{ROOT}",
            f"-I{well_known}",
            f"--python_out={out}",
            f"--pyi_out={out}",
            f"--grpc_python_out={out}",
        ]
        if protoc.main(["protoc", *options, *sources]) != 0:
            raise SystemExit("protoc refused a file of app/protos: its message stands above.")
        return {ROOT / made.relative_to(out): made.read_text("utf-8") for made in sorted(out.rglob("*.py*"))}
