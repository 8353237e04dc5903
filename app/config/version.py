"""A number that stands for a configuration, for comparing what different replicas have in force."""

from __future__ import annotations

import json
import zlib
from typing import Any


def config_version(settings: Any) -> int:
    """Return a checksum of settings given as plain data; the order of keys does not matter."""
    return zlib.crc32(json.dumps(settings, sort_keys=True, default=str).encode())
