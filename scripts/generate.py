"""`make generate` writes every generated file; with `--check` (`make verify`) it only says which ones differ."""

from __future__ import annotations

import sys
from pathlib import Path

from dashboards import output
from scripts import chart_files, manifests, protos

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str]) -> int:
    """Return 0 where all files are as they should be (after writing them), 1 where `--check` found one that is not."""
    # The chart's own files first: the manifests are rendered from them.
    only_check = "--check" in arguments
    stale = [path for part in (protos, chart_files, output, manifests) for path in write(part.files(), only_check)]
    return 1 if stale and only_check else 0


def write(wanted: dict[Path, str], only_check: bool) -> list[Path]:
    """Write the files that differ, or only name them; return them."""
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if only_check:
            print(
                f"{path.relative_to(ROOT)} differs from what it is generated from: run `make generate`", file=sys.stderr
            )
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
