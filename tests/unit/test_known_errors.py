"""A caller's mistake leaves no traceback in the log of a stage's replica; faults of ours do."""

import io
import logging

import pytest

from app.deployments.known_errors import SERVE_LOGGER, drop_caller_mistakes, quieten
from app.errors import CollectionNotFound, ConfigError, InternalError, InvalidRequest


class TaskError(Exception):
    """Stands for Ray's wrapper around what an earlier call raised."""

    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


@pytest.fixture
def log():
    logger = logging.getLogger(SERVE_LOGGER)
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    logger.addHandler(handler)
    quieten()
    quieten()
    yield written
    logger.removeHandler(handler)
    logger.removeFilter(drop_caller_mistakes)
    assert drop_caller_mistakes not in logger.filters


def fail(error):
    try:
        raise error
    except Exception:
        logging.getLogger(SERVE_LOGGER).exception("Request failed.")


@pytest.mark.parametrize(
    "error",
    [CollectionNotFound("There is no collection 'secret'.", "retriever"), TaskError(InvalidRequest("secret"))],
)
def test_a_callers_mistake_is_not_logged(log, error):
    fail(error)
    assert log.getvalue() == ""


@pytest.mark.parametrize("error", [InternalError("broken"), ConfigError("broken"), ValueError("broken")])
def test_a_fault_of_ours_is_logged_with_its_place(log, error):
    fail(error)
    assert "Traceback" in log.getvalue()
    assert "broken" in log.getvalue()


def test_other_records_pass(log):
    logging.getLogger(SERVE_LOGGER).error("a replica is gone")
    assert log.getvalue() == "a replica is gone\n"
