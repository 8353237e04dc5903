"""vLLM's engine behind the loop's contract: ``LLMEngine`` with ``add_request``, ``step`` and ``abort_request``.

Its scheduler runs in this process, on the loop's thread: a step is a call, and a prompt's tensor is handed over as an
object. Where one process can hold the model (vLLM's executor ``uni``: one GPU, or the CPU with
``VLLM_ENABLE_V1_MULTIPROCESSING=0``) the model runs here as well and reads the tensor where it is mapped.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from typing import Any

from app.apps.engine_loop.contract import STAGE, LoopRequest, StepOutput
from app.errors import InvalidRequest, bounded


class VllmEngine:
    """A :class:`app.apps.engine_loop.contract.StepEngine`; ``arguments`` are vLLM's ``EngineArgs``."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        # The imports make millions of objects that live for ever: without the collector they take 16 s instead of 20.
        gc.disable()
        try:
            from vllm.engine.arg_utils import EngineArgs
            from vllm.v1.engine.llm_engine import LLMEngine
            from vllm.v1.executor import Executor
        finally:
            gc.enable()
            gc.freeze()
        config = EngineArgs(**arguments).create_engine_config()
        executor = Executor.get_class(config)
        # Not `from_engine_args`: it puts the scheduler into another process, and a step would be a wait for messages.
        self._engine = LLMEngine(config, executor, log_stats=False, multiprocess_mode=False)
        self._scheduler = self._engine.engine_core.engine_core.scheduler
        self.in_process = executor.__name__ == "UniProcExecutor"

    def add(self, request: LoopRequest) -> None:
        """Take a request. Raises :class:`app.errors.InvalidRequest` for values that vLLM refuses."""
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        try:
            sampling = SamplingParams(**request.sampling, output_kind=RequestOutputKind.DELTA)
            self._engine.add_request(request.id, _prompt(request), sampling)
        except (ValueError, TypeError) as error:
            raise InvalidRequest(f"The engine refuses the request: {bounded(str(error), 200)}.", STAGE) from None

    def step(self) -> list[StepOutput]:
        """Compute the next tokens."""
        return [_output(found) for found in self._engine.step()]

    def abort(self, ids: Sequence[str]) -> None:
        """Drop requests."""
        self._engine.abort_request(list(ids))

    def unfinished(self) -> int:
        """Return what the scheduler, which holds the KV cache, and the detokenizer still have."""
        return int(max(self._scheduler.get_num_unfinished_requests(), self._engine.get_num_unfinished_requests()))

    def close(self) -> None:
        """Stop the executor."""
        self._engine.engine_core.shutdown()


def _prompt(request: LoopRequest) -> Any:
    from vllm.inputs.engine import embeds_input, tokens_input

    # Prefixes are shared within a tenant only: how fast an answer begins must not tell what others asked.
    salt = request.tenant or None
    if request.tensor is None:
        return tokens_input(list(request.tokens), cache_salt=salt)
    return embeds_input(as_tensor(request.tensor.rows, request.tensor.dtype), cache_salt=salt)


def as_tensor(rows: Any, dtype: str) -> Any:
    """Return rows as a torch tensor on the same memory."""
    import torch

    # DLPack takes read-only memory; from_numpy and frombuffer warn of it.
    return torch.from_dlpack(rows).view(getattr(torch, dtype))


def _output(found: Any) -> StepOutput:
    (answer,) = found.outputs
    reason = (answer.finish_reason or "abort") if found.finished else None
    return StepOutput(found.request_id, answer.text, tuple(answer.token_ids), reason)
