"""Tenants: several of them may keep documents in one collection, and none reaches another's.

What a key with a tenant stores carries the reserved field, and everything that such a key asks of a store has the
condition on that field joined to it **beside** the caller's own filter, so no filter can widen it; callers can neither
set the field nor filter on it. The ids of a tenant's documents lie in a name space of its own besides, since a document
replaces the stored one of the same id.
"""

from __future__ import annotations

from dataclasses import replace

from app.ingestion.documents import Document
from app.stores.contract import StoredPassage
from app.stores.filters import RESERVED_ID, RESERVED_KEY, And, Filter, Never, OneOf


def tenant_filter(tenant: str) -> Filter | None:
    """Return the condition that a passage is the tenant's; None for no tenant, who reaches all."""
    return OneOf(RESERVED_KEY, (tenant,)) if tenant else None


def within_tenant(where: Filter | Never | None, tenant: str) -> Filter | Never | None:
    """Return a caller's filter, kept to the tenant's passages."""
    own = tenant_filter(tenant)
    if own is None or isinstance(where, Never):
        return where
    return own if where is None else And((own, where))


def stored_id(document: str, tenant: str) -> str:
    """Return the id under which a tenant's document is stored. Names of tenants hold no slash."""
    return f"{RESERVED_ID}{tenant}/{document}" if tenant else document


def stamped(document: Document, tenant: str) -> Document:
    """Return a document as it is stored for the tenant."""
    if not tenant:
        return document
    metadata = {**document.metadata, RESERVED_KEY: tenant}
    return replace(document, id=stored_id(document.id, tenant), metadata=metadata)


def as_the_tenant_knows(passage: StoredPassage, tenant: str) -> StoredPassage:
    """Return a passage under the id that the tenant gave its document."""
    return replace(passage, id=passage.id.removeprefix(stored_id("", tenant))) if tenant else passage
