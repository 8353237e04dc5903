"""Which field was meant by one that does not exist: a near one, or the same one a level further down or up."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from app.faults import path_of

Model = type[BaseModel]
Location = Sequence[str | int]
_LONGEST_NAME = 64
_LIKENESS = 0.75
_MOST = 2


def meant(model: Model, location: Location) -> list[str]:
    """Return the paths, two at most, that may have been meant by the unknown field at ``location`` of ``model``."""
    *above, name = location
    if not isinstance(name, str) or len(name) > _LONGEST_NAME:
        return []
    here = _models_at([model], above)
    near = [(*above, field) for field in _near(name, [str(field) for field in _fields(here)])]
    below = [(*above, field, found) for field, kind in _fields(here).items() for found in _same(name, _objects(kind))]
    upward = list(_upward(model, above, name))
    return [_path(found) for found in dict.fromkeys([*below, *near, *upward])][:_MOST]


def _path(location: Location) -> str:
    *above, name = location
    return f"{path_of(above)}.{name}" if above else str(name)


def _same(name: str, models: Sequence[Model]) -> list[str]:
    """Return the field of this name, be it in another spelling: ``topK``, ``top-k``."""
    return [field for field in map(str, _fields(models)) if _plain(field) == _plain(name)]


def _upward(model: Model, above: Location, name: str) -> Iterator[Location]:
    for depth in range(len(above)):
        if name in _fields(_models_at([model], above[:depth])):
            yield (*above[:depth], name)


def _near(name: str, fields: Sequence[str]) -> list[str]:
    """Return the field that a name resembles most."""
    plain = {_plain(field): field for field in fields}
    return [plain[found] for found in difflib.get_close_matches(_plain(name), plain, 1, _LIKENESS)]


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _models_at(models: Sequence[Model], location: Location) -> Sequence[Model]:
    for part in location:
        kinds = [fields[part] for found in models if part in (fields := _fields([found]))]
        if kinds:  # else a place in a list, or the kind that was chosen of several
            models = [model for kind in kinds for model in _models(kind)]
    return models


def _fields(models: Sequence[Model]) -> dict[str | int, Any]:
    """Return the fields as callers write them, with their types; those that are only there to be refused are not."""
    return {
        field.alias or name: field.annotation
        for model in models
        for name, field in model.model_fields.items()
        if field.annotation is not NoneType
    }


def _objects(kind: Any) -> list[Model]:
    """Return the models that a value may be itself, not as an item of a list."""
    if isinstance(kind, type) and get_origin(kind) is None:
        return [kind] if issubclass(kind, BaseModel) else []
    if get_origin(kind) in (list, tuple, dict):
        return []
    return [model for part in get_args(kind) for model in _objects(part)]


def _models(kind: Any) -> list[Model]:
    """Return all models in a type."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [model for part in get_args(kind) for model in _models(part)]
