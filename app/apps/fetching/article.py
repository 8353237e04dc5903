"""What was fetched."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Article:
    """The text of a page. ``title`` is empty where the page has none; ``url`` is the page's own, after redirects."""

    title: str
    url: str
    text: str
