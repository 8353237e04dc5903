"""The error tree: every class survives pickling, maps to HTTP once, and keeps its messages short."""

import inspect
import pickle

import pytest

from app import errors
from app.errors import BatonError, ClientError, ConfigError, Overloaded, ServerError, bounded

ALL = [found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, BatonError)]


@pytest.mark.parametrize("error_class", ALL)
def test_every_error_survives_pickling(error_class):
    error = error_class("say it", "retriever", "rag.top_k", 3)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is error_class
    assert vars(copy) == vars(error)
    assert str(copy) == "say it"


@pytest.mark.parametrize("error_class", [found for found in ALL if found not in {BatonError, ConfigError}])
def test_every_error_has_a_side_a_status_and_a_code(error_class):
    assert issubclass(error_class, ClientError) != issubclass(error_class, ServerError)
    assert (error_class.status < 500) == issubclass(error_class, ClientError)
    body = error_class("say it", "gateway").body()["error"]
    assert set(body) == {"message", "type", "param", "code", "stage"}
    assert body["code"]


def test_the_tree_in_the_docstring_is_the_tree():
    for error_class in ALL:
        assert error_class.__name__ in errors.__doc__, f"{error_class.__name__} is missing from the drawing"


def test_retry_after_is_whole_seconds_and_only_there_when_known():
    assert Overloaded("busy", "gateway", None, 2).headers() == {"Retry-After": "2"}
    assert Overloaded("busy", "gateway", None, 0).headers() == {"Retry-After": "1"}
    assert Overloaded("busy").headers() == {}


@pytest.mark.parametrize("value", ["x" * 10_000, ["y" * 10_000], {"k": 1}, 3])
def test_echoes_are_bounded(value):
    assert len(bounded(value)) <= 80
