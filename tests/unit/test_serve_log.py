"""Serve's log of a replica in which another library sets up logging of its own."""

import logging
from logging.config import dictConfig
from logging.handlers import MemoryHandler, RotatingFileHandler

import pytest

from app.deployments import serve_log


@pytest.fixture
def handler(tmp_path):
    """Serve's handler, as it makes one."""
    file = RotatingFileHandler(tmp_path / "replica.log")
    found = MemoryHandler(1, target=file)
    logger = logging.getLogger("ray.serve")
    logger.addHandler(found)
    yield found
    logger.removeHandler(found)
    file.close()


def test_a_line_that_comes_after_the_other_library_stands_in_the_file(handler, tmp_path):
    with serve_log.kept():
        dictConfig({"version": 1, "disable_existing_loggers": False})
        assert handler.target is None, "this is what is mended"
    logging.getLogger("ray.serve").error("one line")
    assert (tmp_path / "replica.log").read_text() == "one line\n"
    assert handler.buffer == []


def test_the_file_is_back_where_the_other_library_fails(handler):
    def fail():
        dictConfig({"version": 1, "disable_existing_loggers": False})
        raise RuntimeError

    with pytest.raises(RuntimeError), serve_log.kept():
        fail()
    assert handler.target is not None
