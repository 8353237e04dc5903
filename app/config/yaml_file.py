"""A YAML file read strictly: no key stands twice, and no placeholder is left that nobody fills in."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from app.errors import ConfigError, bounded

#: A name in braces where a place may stand: not in a template's ``{{x}}``, nor in a pattern's ``\\p{Han}``.
_PLACEHOLDER = re.compile(r"(?<![{\\])(?<!\\[pP])\{([A-Za-z_]\w*)\}(?!\})")
#: The same in a text of several words, where braces may mean anything: only as a part of a path.
_IN_PATH = re.compile(r"(?:^|/)\{([A-Za-z_]\w*)\}(?=/|$)")


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {bounded(key)} stands twice: remove one of them", key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(
    path: Path,
    places: Mapping[str, str],
    *,
    start: str = "copy config/local.yaml and change the copy",
    echo: bool = True,
) -> dict[str, Any]:
    """Return the file's mapping, with each ``{name}`` in its texts replaced by ``places[name]``.

    ``start`` says how to begin where the file is empty; ``echo`` false quotes no value, which may be a secret.
    Raises :class:`ConfigError` with one sentence.
    """
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a SafeLoader
        if raw is None:
            raise ConfigError(f"{path} is empty: {start}.")
        if not isinstance(raw, dict):
            raise ConfigError(f"{path} must hold keys and their values at the top, not {_kind(raw, echo)}.")
        return {key: _filled(value, places, str(key), path) for key, value in raw.items()}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or type(error).__name__}.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} cannot be read: it is not UTF-8 (byte {error.start}).") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} cannot be read: {_fault(error)}.") from None
    except RecursionError:
        raise ConfigError(f"{path} cannot be read: an alias refers to itself, or it is nested too deeply") from None


def _kind(value: Any, echo: bool) -> str:
    if isinstance(value, list):
        return "a list"
    return f"the one value {bounded(value)}" if echo else "one value"


def _fault(error: yaml.YAMLError) -> str:
    """Return what is wrong, and where, in one line."""
    problem = str(getattr(error, "problem", None) or error).splitlines()[0]
    mark = getattr(error, "problem_mark", None)
    return problem if mark is None else f"{problem} (line {mark.line + 1}, column {mark.column + 1})"


def _filled(value: Any, places: Mapping[str, str], where: str, path: Path) -> Any:
    if isinstance(value, str):
        _check_placeholders(value, places, where, path)
        for name, folder in places.items():
            value = value.replace(f"{{{name}}}", folder)
        return value
    if isinstance(value, list):
        return [_filled(part, places, f"{where}[{number}]", path) for number, part in enumerate(value)]
    if isinstance(value, dict):
        return {key: _filled(part, places, f"{where}.{key}", path) for key, part in value.items()}
    return value


def _check_placeholders(text: str, places: Mapping[str, str], where: str, path: Path) -> None:
    pattern = _IN_PATH if any(map(str.isspace, text)) else _PLACEHOLDER
    for found in pattern.finditer(text):
        if found[1] not in places:
            known = " and ".join(f"{{{name}}}" for name in places)
            raise ConfigError(f"{path}: {where} names the placeholder {bounded(found[0])}; there are {known} only.")
