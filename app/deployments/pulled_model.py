"""A hook of ``ray.serve.llm`` that brings a model's files from the hub, visibly, before the engine looks for them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import ray
from ray import serve
from ray.llm._internal.common.callbacks.base import CallbackBase

from app.delivery.hub import pull_from_hub
from app.deployments.download_notes import forget, note
from app.logs import logger

log = logger("generator")


class PulledModel(CallbackBase):  # type: ignore[misc]
    """Downloads and checks a model that is named by a hub id, on every node that its engine uses.

    Progress is logged, and told by the gateway's ``/readyz``. A download that fails stops the replica, and its sentence
    (no such model, no room, no hub, a wrong checksum) is the end of the deployment's message in Serve's status. The
    engine gets the folder in place of the id: it asks no hub any more, and starts with the cache alone.
    """

    async def on_before_node_init(self) -> None:
        """Bring the files to this node; where it is the only one, say that nothing is left to do."""
        engine = self.llm_config.get_engine_config()
        application = serve.get_replica_context().app_name
        try:
            engine.hf_model_id = await asyncio.to_thread(self._pull, application)
        finally:
            await asyncio.to_thread(forget, application)
        self.ctx.run_init_node = bool(self._nodes() - {ray.get_runtime_context().get_node_id()})

    def on_before_download_model_files_distributed(self) -> None:
        """Bring the files to another node: this runs in a task on each."""
        self._pull(None)

    def _pull(self, application: str | None) -> str:
        loading = self.llm_config.model_loading_config

        def say(line: str) -> None:
            log.info(line)
            if application is not None:
                with suppress(Exception):  # whoever asks hears less, and the download goes on
                    note(application, line)

        revision = self.llm_config.engine_kwargs.get("revision") or "main"
        return str(pull_from_hub(loading.model_source or loading.model_id, revision, say))

    def _nodes(self) -> set[str]:
        group = self.ctx.placement_group
        return set() if group is None else set(ray.util.placement_group_table(group)["bundles_to_node_id"].values())
