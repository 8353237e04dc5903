"""Serve's autoscaling of an engine by what the engine is busy with.

::

    autoscaling_config:
      policy:
        policy_function: app.deployments.engine_policy:EnginePolicy
        policy_kwargs: {targets: {running: 24, kv_cache: 0.8}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.serve.autoscaling_policy import PrometheusQueryMixin

from app.scaling import Seen, check_targets, wanted_replicas


class EnginePolicy(PrometheusQueryMixin):  # type: ignore[misc]
    """Asks for so many replicas that each has no more than its target of every signal.

    ``targets``: signal → what one replica should have of it (:data:`app.scaling.SIGNALS`). ``queries``: PromQL → the
    same for a number of one's own, counted over all replicas; Prometheus is at ``prometheus_address``, by default
    where the environment's ``RAY_PROMETHEUS_HOST`` says. Bounds, factors and delays stay those of the deployment.
    """

    def __init__(
        self,
        targets: Mapping[str, float] | None = None,
        queries: Mapping[str, float] | None = None,
        prometheus_address: str | None = None,
    ) -> None:
        self._targets, self._queries = dict(targets or {}), dict(queries or {})
        check_targets(self._targets, self._queries)
        super().__init__(prometheus_address=prometheus_address, prometheus_queries=list(self._queries))

    def __call__(self, context: Any) -> tuple[float, dict[str, Any]]:
        """Return the number of replicas; Serve calls this every tenth of a second and must not wait."""
        if context.current_num_replicas == 0:  # Serve itself starts the first one when a request comes
            return context.target_num_replicas, {}
        found = (self.prometheus_metrics or {}) if self._queries else {}
        seen = Seen(
            replicas=context.current_num_replicas,
            ongoing=context.total_num_requests,
            target_ongoing=context.config.get_target_ongoing_requests(),
            measured=context.aggregated_metrics or {},
            totals=[(self._queries[query], value) for query, value in found.items()],
        )
        return wanted_replicas(seen, self._targets), {}
