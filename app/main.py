"""The import paths of Baton's Serve applications, such as ``app.main:build_pipeline`` and ``app.main:build_model``.

Ray hands a builder its raw ``args`` when annotations are postponed, so this module does not postpone them, and each
builder validates what it gets: a wrong value ends in ``DEPLOY_FAILED`` with a sentence that names the key.
"""

from typing import Any

from ray import serve
from ray.serve import Application

from app.config.deployment_options import ingress_room
from app.config.pipeline import PipelineShape
from app.config.serve import STAGES
from app.delivery.engines import with_download


def build_pipeline(args: dict[str, Any]) -> Application:
    """Build the pipeline application from :class:`app.config.pipeline.PipelineShape` as ``args``.

    Deployments: ``gateway`` and one per stage whose placement is ``deployment``. Names are fixed here: ``user_config``
    finds them by name.
    """
    from app.deployments.gateway import Gateway
    from app.deployments.stages import StageDeployment, stage_shape

    shape = PipelineShape.parse(args, "args")
    plain = shape.model_dump(mode="json")
    handles = {}
    for name in STAGES:
        own = stage_shape(shape, name)
        if own.placement == "deployment":
            handles[name] = (
                serve.deployment(StageDeployment)
                .options(
                    name=name,
                    max_ongoing_requests=own.max_ongoing_requests,
                    max_queued_requests=own.max_queued_requests,
                    **own.options,
                )
                .bind(name, plain)
            )
    gateway = shape.stages.gateway
    return (
        serve.deployment(serve.ingress()(Gateway))
        .options(
            name="gateway",
            max_ongoing_requests=ingress_room(gateway.max_ongoing_requests, gateway.max_queued_requests),
            **gateway.options,
        )
        .bind(plain, handles)
    )


def build_model(args: dict[str, Any]) -> Application:
    """Build one model's application with its deployment ``generator``.

    ``args`` are ``LLMConfig`` of ``ray.serve.llm``, verbatim. A model that a hub id names is downloaded by us.
    """
    args = with_download(args)
    if _needs_no_placement(args):
        from app.deployments.light_generator import LightGenerator

        cpus = args["placement_group_config"]["bundles"][0]["CPU"]
        return (
            serve.deployment(LightGenerator).options(name="generator", ray_actor_options={"num_cpus": cpus}).bind(args)
        )
    from ray.serve.llm import LLMConfig, build_llm_deployment

    from app.deployments.generator import GeneratorServer

    application: Application = build_llm_deployment(
        LLMConfig(**args), override_serve_options={"name": "generator"}, deployment_cls=GeneratorServer
    )
    return application


def build_analyze(args: dict[str, Any]) -> Application:
    """Build ``/analyze`` from :class:`app.config.applications.AnalyzeStages` as ``args``."""
    from app.config.applications import AnalyzeStages
    from app.deployments.application_ingress import build_ingress
    from app.deployments.applications import AnalyzeIngress

    return build_ingress(AnalyzeIngress, AnalyzeStages.parse(args, "args"))


def build_articles(args: dict[str, Any]) -> Application:
    """Build ``/articles`` from :class:`app.config.applications.ArticlesStages` as ``args``."""
    from app.config.applications import ArticlesStages
    from app.deployments.application_ingress import build_ingress
    from app.deployments.applications import ArticlesIngress

    return build_ingress(ArticlesIngress, ArticlesStages.parse(args, "args"))


def build_engine_loop(args: dict[str, Any]) -> Application:
    """Build the own engine loop from :class:`app.config.engine_loop.EngineLoopShape` as ``args``.

    Deployments: ``engine_loop`` and, where prompts may be tensors, ``splicer``.
    """
    from app.config.engine_loop import EngineLoopShape
    from app.deployments.engine_loop import EngineLoopServer, SplicerServer

    shape = EngineLoopShape.parse(args, "args")
    plain = shape.model_dump(mode="json")
    splicer = (
        serve.deployment(SplicerServer)
        .options(**{"max_ongoing_requests": shape.most_requests, **shape.embeddings.options, "name": "splicer"})
        .bind(plain)
        if shape.embeddings.enabled
        else None
    )
    return (
        serve.deployment(serve.ingress()(EngineLoopServer))
        .options(name="engine_loop", max_ongoing_requests=ingress_room(shape.most_requests), user_config={})
        .bind(plain, splicer)
    )


def _needs_no_placement(args: dict[str, Any]) -> bool:
    """Tell whether an engine runs without accelerators in one place, so that nothing has to be computed for it.

    The stock builder imports all of the engine to work out a placement group; that is a third of a start on the CPU.
    """
    engine = args.get("engine_kwargs", {})
    parallel = max(engine.get("tensor_parallel_size", 1), engine.get("pipeline_parallel_size", 1))
    bundles = args.get("placement_group_config", {}).get("bundles", [])
    one_cpu_bundle = len(bundles) == 1 and set(bundles[0]) == {"CPU"}
    plain = not args.get("deployment_config") and not args.get("runtime_env")
    return args.get("accelerator_type", "any") is None and parallel == 1 and one_cpu_bundle and plain
