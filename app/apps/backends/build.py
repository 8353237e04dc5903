"""From the configuration of a step to its backend. Libraries are imported where a backend starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.apps.backends.contract import Backend, EntityFinder, Local, SentimentJudge, Summariser
from app.apps.backends.core_model import CoreModel, Engine, entities_task, sentiment_task, summary_task
from app.config.applications import DeploymentShape, EntitiesShape, PreprocessShape, SentimentShape, SummaryShape
from app.errors import ConfigError

#: Serve application and name of one of Baton's models → its engine.
FindEngine = Callable[[str, str], Engine]


def build_sentiment(shape: SentimentShape, engine: FindEngine) -> SentimentJudge:
    """Return what judges sentiment, not started."""
    config = shape.backend
    if config.kind == "model":
        found = engine(config.model_application, config.source)
        return CoreModel(found, config.source, sentiment_task(config.negative_labels), "sentiment")
    if config.kind == "vader":
        from app.apps.backends.vader import Vader

        return Local(Vader(), shape.threads)
    from app.apps.backends.transformers_models import TextClassifier

    return Local(TextClassifier(config), shape.threads)


def build_summary(shape: SummaryShape, engine: FindEngine) -> Summariser:
    """Return what summarises, not started."""
    config = shape.backend
    if config.kind == "model":
        return CoreModel(engine(config.model_application, config.source), config.source, summary_task(), "summary")
    if config.kind == "extractive":
        from app.apps.backends.extractive import Extractive

        return Local(Extractive(config, shape.threads), shape.threads)
    from app.apps.backends.transformers_models import Seq2Seq

    return Local(Seq2Seq(config), shape.threads)


def build_entities(shape: EntitiesShape, engine: FindEngine) -> EntityFinder:
    """Return what finds named entities, not started."""
    config = shape.backend
    if config.kind == "model":
        return CoreModel(engine(config.model_application, config.source), config.source, entities_task(), "entities")
    if config.kind == "spacy":
        from app.apps.backends.spacy_names import SpacyNames

        return Local(SpacyNames(config.source), shape.threads)
    from app.apps.backends.transformers_models import TokenClassifier

    return Local(TokenClassifier(config), shape.threads)


def build_backend(name: str, shape: DeploymentShape, engine: FindEngine) -> Backend[Any, Any]:
    """Return the backend of the step called ``name``."""
    if isinstance(shape, PreprocessShape):
        from app.apps.preprocess import Preprocessor

        return Local(Preprocessor(shape.tokenizer, shape.local_files_only), shape.threads, batched=False)
    if isinstance(shape, SentimentShape):
        return build_sentiment(shape, engine)
    if isinstance(shape, SummaryShape):
        return build_summary(shape, engine)
    if isinstance(shape, EntitiesShape):
        return build_entities(shape, engine)
    raise ConfigError(f"The step {name} has no backend.", name)
