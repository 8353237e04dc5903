"""What calls fail with, and what a deployment's message says to people."""

import pytest

from app.errors import DeadlineExceeded
from app.failures import last_words, translate

TRACE = """A replica failed to start with exception. Retrying 2 more time(s). Error:
ray::ServeReplica:model-otter:generator.initialize_and_get_metadata() (pid=1)
RuntimeError: Traceback (most recent call last):
  File "app/delivery/hub.py", line 50, in pull_from_hub
Exception: The model 'otter/none' cannot be fetched: the hub has no such model.
"""


def test_of_a_stack_trace_the_last_line_is_what_was_raised():
    assert last_words(TRACE) == "Exception: The model 'otter/none' cannot be fetched: the hub has no such model."


def test_what_serve_says_itself_stays_whole():
    said = "Deployment 'generator' has 1 replicas that have taken more than 30s to initialize.\nThis may be slow."
    assert last_words(said) == said
    assert last_words("") == ""


@pytest.mark.parametrize("name", ["RequestCancelledError", "TaskCancelledError"])
def test_a_response_that_was_cancelled_for_its_deadline_is_no_fault_to_log(name, caplog):
    error = type(name, (Exception,), {})("r-1")
    assert isinstance(translate(error, "preprocess"), DeadlineExceeded)
    assert caplog.text == ""
