"""The ingresses of the applications that Baton ships."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter

from app.apps.guarding import Guard
from app.config.applications import ANALYZE, ARTICLES, AnalyzeLive, ArticlesLive
from app.deployments.application_ingress import Ingress


class AnalyzeIngress(Ingress[AnalyzeLive]):
    """``/analyze``."""

    name = ANALYZE
    live = AnalyzeLive

    def service(self, steps: Mapping[str, Any], guard: Guard) -> Any:
        """Return the composition."""
        from app.apps.analyze import Analyze

        return Analyze(steps["preprocess"], steps["sentiment"], steps["summary"], guard, self.settings)

    def router(self) -> APIRouter:
        """Return the routes."""
        from app.api.applications.analyze import router

        return router


class ArticlesIngress(Ingress[ArticlesLive]):
    """``/articles``."""

    name = ARTICLES
    live = ArticlesLive

    def service(self, steps: Mapping[str, Any], guard: Guard) -> Any:
        """Return the composition."""
        from app.apps.articles import Articles, Steps
        from app.apps.source import Fetching

        source = Fetching(lambda: self.settings().fetch, self._traces)
        gone_through = Steps(steps["sentiment"], steps["summary"], steps["entities"])
        return Articles(gone_through, source, guard, self.settings)

    def router(self) -> APIRouter:
        """Return the routes."""
        from app.api.applications.articles import router

        return router
