"""Where articles come from: a page that a caller names, or the first hit of a search."""

from __future__ import annotations

from typing import Protocol


class Source(Protocol):
    """Fetches texts. Raises errors of ``app.errors``, the caller's and the other server's kept apart."""

    async def text_of(self, url: str, deadline: float) -> str:
        """Return the text of a page."""
        ...

    async def first_hit(self, search_term: str, deadline: float) -> str | None:
        """Return the text of the first page that a search finds; None where it finds none."""
        ...
