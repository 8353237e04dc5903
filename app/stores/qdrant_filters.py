"""Filters as Qdrant's filter objects, and full text as sparse vectors.

Metadata is kept as ``facets.<type>_<hash of the key>``: any key is a safe payload path, and texts, numbers and booleans
are told apart by path. ``facets.keys`` lists the hashes of all keys.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from app.stores.contract import Scalar
from app.stores.filters import And, Compares, Exists, Filter, Not, OneOf, Or

# The constants of BM25 as its authors give them; passages are cut to about one length, so that length is fixed.
_K1 = 1.2
_B = 0.75
_USUAL_TERMS = 60


def facets(metadata: Mapping[str, Scalar]) -> dict[str, Any]:
    """Return metadata as payload that :func:`compile_filter` can find."""
    found: dict[str, Any] = {"keys": [_hashed(key) for key in metadata]}
    for key, value in metadata.items():
        found[_field(key, value)] = value if isinstance(value, bool | str) else float(value)
    return found


def compile_filter(node: Filter | None) -> Any:
    """Return a ``models.Filter``; None for no filter."""
    from qdrant_client import models

    if node is None:
        return None
    condition = _condition(node, models)
    return condition if isinstance(condition, models.Filter) else models.Filter(must=[condition])


def document_filter(ids: Sequence[str] | None, where: Filter | None = None, *, first_only: bool = True) -> Any:
    """Return the filter for the passages of documents (None = of all), or only for the first passage of each.

    ``where`` has to hold besides.
    """
    from qdrant_client import models

    must = []
    if first_only:
        must.append(models.FieldCondition(key="position", match=models.MatchValue(value=0)))
    if ids is not None:
        must.append(models.FieldCondition(key="document_id", match=models.MatchAny(any=list(ids))))
    if where is not None:
        must.append(compile_filter(where))
    return models.Filter(must=must)


def term_weights(terms: Sequence[str]) -> Any:
    """Return a passage's sparse vector: for each term BM25's saturated frequency. Qdrant adds the rarity."""
    length = 1 - _B + _B * len(terms) / _USUAL_TERMS
    weights: dict[int, float] = {}
    for term, count in Counter(terms).items():
        weights[_index(term)] = count * (_K1 + 1) / (count + _K1 * length)
    return _sparse(weights)


def query_terms(terms: Sequence[str]) -> Any:
    """Return a question's sparse vector: 1 for each term."""
    return _sparse(dict.fromkeys(map(_index, terms), 1.0))


def _condition(node: Filter, models: Any) -> Any:
    match node:
        case And(parts):
            return models.Filter(must=[_condition(part, models) for part in parts])
        case Or(parts):
            return models.Filter(should=[_condition(part, models) for part in parts])
        case Not(part):
            return models.Filter(must_not=[_condition(part, models)])
        case Exists(key):
            return models.FieldCondition(key="facets.keys", match=models.MatchValue(value=_hashed(key)))
        case Compares(key, order, value):
            return _number(models, key, **{order: value})
        case OneOf():
            return _one_of(node, models)


def _one_of(node: OneOf, models: Any) -> Any:
    conditions = [_number(models, node.key, gte=value, lte=value) for value in node.numbers]
    if node.texts:
        match = models.MatchAny(any=node.texts)
        conditions.append(models.FieldCondition(key=facet(node.key, ""), match=match))
    for value in node.booleans:
        match = models.MatchValue(value=value)
        conditions.append(models.FieldCondition(key=facet(node.key, value), match=match))
    return models.Filter(should=conditions)


def _number(models: Any, key: str, **bounds: float) -> Any:
    return models.FieldCondition(key=facet(key, 0.0), range=models.Range(**bounds))


def facet(key: str, value: Scalar) -> str:
    """Return the payload's path of a key's values of the kind of ``value``."""
    return f"facets.{_field(key, value)}"


def _field(key: str, value: Scalar) -> str:
    kind = "b" if isinstance(value, bool) else "s" if isinstance(value, str) else "n"
    return f"{kind}_{_hashed(key)}"


def _hashed(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=12).hexdigest()


def _index(term: str) -> int:
    return int.from_bytes(hashlib.blake2b(term.encode(), digest_size=4).digest(), "big")


def _sparse(weights: Mapping[int, float]) -> Any:
    from qdrant_client import models

    return models.SparseVector(indices=list(weights), values=list(weights.values()))
