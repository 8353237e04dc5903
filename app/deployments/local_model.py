"""A hook of ``ray.serve.llm`` for models that lie on disk."""

from __future__ import annotations

from ray.llm._internal.common.callbacks.base import CallbackBase


class LocalModel(CallbackBase):  # type: ignore[misc]
    """Skips the download of model files: named as ``callback_config.callback_class`` of a model on a local path.

    The stock download runs as a Ray task, one more process with all of the engine's imports: 16 s of a start.
    """

    async def on_before_node_init(self) -> None:
        """Say that there is nothing to download."""
        self.ctx.run_init_node = False
