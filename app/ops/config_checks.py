"""What of a configuration can be known to fail before it is sent; each fault is one sentence that says what to change.

A replica would refuse the same: settings without a word to whoever sent them, a shape by starting again and again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from app.batch.store import check_folder
from app.config.guardrail import ClassifierRule
from app.config.local import ROOT, LocalConfig
from app.config.retrieval import StoreConfig
from app.config.serve import STAGES, replicated
from app.errors import ConfigError, StageUnavailable, bounded
from app.guard.classifier import Classifier, check_rule
from app.keys.file import hash_of, read_keys
from app.ops.api_key import VARIABLE, api_key
from app.stages.guardrail import Guardrail
from app.stores.build import check_packages


def check_config(config: LocalConfig) -> None:
    """Raise :class:`ConfigError` at the first thing that the pipeline would refuse, or that could never start."""
    check_cpus(config)
    check_store(config.pipeline.store)
    check_folder(config.settings.batches, make=False)
    check_guardrail(config)
    check_keys(config)


def check_keys(config: LocalConfig) -> None:
    """Read the file of keys, where the settings turn keys on, and look whether our own key is one of them."""
    auth, own = config.settings.auth, api_key()
    if not auth.enabled:
        return
    keys = read_keys(Path(auth.keys_file)).keys
    if own and hash_of(own) not in {secret.hash for key in keys for secret in key.secrets}:
        raise ConfigError(f"The key in the environment variable {VARIABLE} is none of {auth.keys_file}.")


def check_own_key(config: LocalConfig) -> None:
    """Refuse a start that would index documents without a key, where the settings turn keys on."""
    if config.settings.auth.enabled and config.collections and not api_key():
        raise ConfigError(
            f"settings.auth is enabled, and {next(iter(config.collections))} is indexed at the start: give a key with "
            f"ingest in the environment variable {VARIABLE}, or empty collections."
        )


def check_guardrail(config: LocalConfig) -> None:
    """Build the policies as the guardrail does, from the same files; only a classifier's weights are left to it."""
    guardrail = Guardrail(config.settings.guardrail, load=_without_weights)
    try:
        guardrail.start()
    finally:
        guardrail.close()


class _WithoutWeights:
    """Stands in for a model of hundreds of megabytes, which a process that only sends settings must not load."""

    def hits(self, texts: tuple[str, ...]) -> list[bool]:
        raise StageUnavailable("The classifier has no weights in this process.", "guardrail")


def _without_weights(rule: ClassifierRule, where: str) -> Classifier:
    check_rule(rule, where)
    return _WithoutWeights()


def check_store(store: StoreConfig) -> None:
    """Refuse a store whose packages are not installed, and a folder that cannot be made or written to."""
    check_packages(store.kind)
    folder = _folder(store)
    if folder is None:
        return
    try:
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(
            f"pipeline.store.uri names {bounded(store.uri, 300)}, where nothing can be written ({reason}): "
            "name a folder that can be, or mend its permissions."
        ) from None


def _folder(store: StoreConfig) -> Path | None:
    """Return the folder of a store on this machine; None for a server, object storage and memory."""
    embedded = store.kind != "pgvector" and "://" not in store.uri and store.uri != ":memory:"
    return (ROOT / store.uri) if embedded else None


def check_cpus(config: LocalConfig) -> None:
    """Refuse what asks for more CPUs than Ray hands out: its replicas would wait for ever without a word."""
    offered = config.machine.logical_cpus
    needs = dict(_needs(config))
    for key, (each, _) in needs.items():
        if each > offered:
            raise ConfigError(
                f"A replica of {key} asks for {each:g} CPUs (num_cpus), and this machine offers {offered} "
                "(machine.logicalCpus): lower the one or raise the other."
            )
    total = sum(each * replicas for each, replicas in needs.values())
    if total > offered:
        told = ", ".join(f"{key} {each * replicas:g}" for key, (each, replicas) in needs.items())
        raise ConfigError(
            f"Stages and models ask for {total:g} CPUs together ({told}), and this machine offers {offered} "
            "(machine.logicalCpus): lower their num_cpus or their replicas, or raise what it offers."
        )


def _needs(config: LocalConfig) -> Iterator[tuple[str, tuple[float, int]]]:
    """Yield for each deployment its key, the CPUs of one replica, and the fewest replicas that there will be."""
    stages = config.pipeline.stages
    for name in ("gateway", *STAGES):
        stage = getattr(stages, name)
        if name == "gateway" or stage.placement == "deployment":
            yield f"pipeline.stages.{name}", (_cpus(stage.options, 1.0), _replicas(stage.options))
    for name, application in config.applications.enabled().items():
        for step in type(application.stages).model_fields:
            options = replicated(getattr(application.stages, step))
            yield f"applications.{name}.stages.{step}", (_cpus(options, 1.0), _replicas(options))
    for place, model in enumerate(config.models):
        placement = model.engine.get("placement_group_config")
        bundles = placement.get("bundles") or () if isinstance(placement, dict) else ()
        yield f"models.{place}", (_cpus(model.options, _sum_of(bundles)), _replicas(model.options))


def _cpus(options: Mapping[str, Any], default: float) -> float:
    """Return what one replica takes; ``default`` is Serve's, or the engine's."""
    if bundles := options.get("placement_group_bundles"):
        return _sum_of(bundles)
    asked = (options.get("ray_actor_options") or {}).get("num_cpus")
    return default if asked is None else max(float(asked), 0.0)


def _sum_of(bundles: Iterable[Any]) -> float:
    amounts = [bundle.get("CPU", 0) for bundle in bundles if isinstance(bundle, dict)]
    return float(sum(amount for amount in amounts if isinstance(amount, int | float)))


def _replicas(options: Mapping[str, Any]) -> int:
    autoscaling = options.get("autoscaling_config")
    if autoscaling is not None:
        return int(autoscaling["min_replicas"])
    found = options.get("num_replicas")
    return 1 if found is None else int(found)


def _searched(config: LocalConfig) -> Iterator[tuple[str, Collection[str]]]:
    for name, profile in config.settings.profiles.items():
        yield f"profiles.{name}", profile.retrieval.collections
    for name, routing in config.settings.routing.items():
        for variant, found in routing.variants.items():
            yield f"routing.{name}.variants.{variant}", found.retrieval.collections or ()


def missing_collections(config: LocalConfig, known: Collection[str]) -> Iterator[str]:
    """Yield a line for each profile and variant that searches a collection neither ``known`` nor indexed at start."""
    there = {*known, *config.collections}
    for where, collections in _searched(config):
        lacking = [collection for collection in collections if collection not in there]
        if lacking:
            yield (
                f"warning: settings.{where}.retrieval.collections names {', '.join(map(bounded, lacking))}, "
                "which is not there: questions get 404 until it is indexed"
            )


def moving_stages(config: LocalConfig, deployed: Collection[str]) -> Iterator[str]:
    """Yield a line for each stage among the ``deployed`` ones that moves into the gateway."""
    for name in STAGES:
        if name in deployed and getattr(config.pipeline.stages, name).placement == "gateway":
            yield (
                f"warning: the {name} moves from its deployment into the gateway: until the new gateway serves, about "
                "half a minute, requests that need it get 503 with Retry-After"
            )


def collections_on_disk(store: StoreConfig) -> Collection[str] | None:
    """Return the names of the collections in a LanceDB on this machine; None where another store holds them."""
    folder = _folder(store)
    if folder is None or store.kind != "lancedb":
        return None
    return [table.stem for table in folder.glob("*.lance")]
