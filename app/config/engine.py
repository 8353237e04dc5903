"""A model's engine, ``LLMConfig`` of ``ray.serve.llm``, as far as it can be told wrong before it starts.

Ray refuses a misspelt key only in the replica, minutes after the install. What only vLLM knows (``engine_kwargs``)
passes through.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from app.config.deployment_options import without_references
from app.faults import path_of, sentence_of

_Parallel = Annotated[int, Field(ge=1)]
_Bundle = dict[str, Annotated[float, Field(ge=0)]]
_Block = dict[str, Any]


class _Verbatim(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True, protected_namespaces=()
    )


class RuntimeEnvironment(_Verbatim):
    """Ray's runtime_env."""

    model_config = ConfigDict(extra="allow")

    env_vars: _Block | None = None
    """Environment variables."""


class ModelLoading(_Verbatim):
    """Where the model's files come from."""

    model_id: str | None = None
    """Name of the model in the engine."""
    model_source: str | _Block | None = None
    """Folder, id of the hub, or a bucket."""
    tokenizer_source: str | None = None
    """The same for the tokenizer, where it lies elsewhere."""


class EngineArguments(_Verbatim):
    """vLLM's own arguments; these are read here as well."""

    model_config = ConfigDict(extra="allow")

    tensor_parallel_size: _Parallel = 1
    """GPUs that share each layer."""
    pipeline_parallel_size: _Parallel = 1
    """Groups of GPUs that share the layers."""
    max_model_len: Annotated[int, Field(ge=1)] | None = None
    """The window in tokens."""


class Placement(_Verbatim):
    """How the engine's processes lie on nodes."""

    bundle_per_worker: _Bundle | None = None
    """Resources of each process."""
    bundles: list[_Bundle] | None = None
    """Resources of all processes, one by one."""
    strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] | None = None
    """Whether they share nodes."""


class EngineShape(_Verbatim):
    """The keys of ``LLMConfig``; those that Ray takes as null may be null."""

    model_loading_config: ModelLoading = ModelLoading()
    """Where the model's files come from."""
    engine_kwargs: EngineArguments = EngineArguments()
    """Arguments of vLLM."""
    placement_group_config: Placement | None = None
    """How the engine's processes lie on nodes."""
    accelerator_type: str | None = None
    """Kind of GPU."""
    runtime_env: RuntimeEnvironment | None = None
    """Runtime environment of this engine."""
    accelerator_config: _Block | None = None
    """Further choices for the accelerator."""
    callback_config: _Block = Field(default_factory=dict)
    """Code that runs around the engine's start."""
    deployment_config: _Block = Field(default_factory=dict)
    """Ray's; `options` of the model change in place and stand over it."""
    experimental_configs: _Block = Field(default_factory=dict)
    """Ray's experiments."""
    llm_engine: str = "vLLM"
    """The engine's kind."""
    log_engine_metrics: bool | None = None
    """Whether vLLM's metrics are exported."""
    lora_config: _Block | None = None
    """LoRA adapters."""
    server_cls: str | None = None
    """Ray's class of the server."""


def _checked(raw: dict[str, Any], shape: type[_Verbatim]) -> dict[str, Any]:
    """Return the mapping as it was given. Raises ValueError with a sentence that names the key."""
    try:
        shape.model_validate(raw)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise ValueError(f"{path_of(fault['loc'])}: {sentence_of(fault)}") from None
    return raw


def _schema(shape: type[_Verbatim]) -> dict[str, Any]:
    raw = shape.model_json_schema()
    found: dict[str, Any] = without_references(raw, raw.get("$defs", {}))
    return found


#: An engine as a mapping, checked.
Engine = Annotated[
    dict[str, Any], AfterValidator(partial(_checked, shape=EngineShape)), WithJsonSchema(_schema(EngineShape))
]
#: Ray's runtime_env as a mapping, checked.
RuntimeEnv = Annotated[
    dict[str, Any],
    AfterValidator(partial(_checked, shape=RuntimeEnvironment)),
    WithJsonSchema(_schema(RuntimeEnvironment)),
]
