"""What a message is taken to weigh when the way of a hop is chosen."""

import math

from app.handles import message_bytes
from app.messages import JudgeRequest


def test_message_bytes_sees_text_wherever_it_lies():
    text = "字" * 1000
    assert message_bytes(JudgeRequest("input", (text, text))) >= 8000
    assert message_bytes({"messages": [{"content": text}]}) >= 4000
    assert message_bytes(b"12345") == 5
    assert message_bytes(math.pi) == 8
