"""Engines whose model a hub id names get it from us; all others stay as they are."""

import pytest

from app.delivery.engines import with_download


def engine(source, **more):
    return {"model_loading_config": {"model_id": "otter", "model_source": source}, **more}


@pytest.mark.parametrize(
    "given",
    [engine("meta-llama/Llama-3.1-8B-Instruct"), engine("a/b", engine_kwargs={"load_format": "safetensors"})],
)
def test_a_model_of_a_hub(given):
    hook = {"callback_class": "app.deployments.pulled_model.PulledModel"}
    assert with_download(given) == {**given, "callback_config": hook}
    assert "callback_config" not in given


@pytest.mark.parametrize(
    "given",
    [
        engine("/models/otter"),
        engine("./models"),
        engine("s3://bucket/otter"),
        engine({"bucket_uri": "s3://bucket/otter"}),
        engine("a/b", callback_config={"callback_class": "mine.Hook"}),
        engine("a/b", engine_kwargs={"load_format": "gguf"}),
        {"model_loading_config": {"model_id": "otter"}},
        {},
    ],
)
def test_whatever_is_not(given):
    assert with_download(given) == given
