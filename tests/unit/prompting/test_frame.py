import re

from hypothesis import given, settings
from hypothesis import strategies as st

from app.prompting.frame import context_text, passage_block

ENDS = st.sampled_from(["\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029", "[2] x", "Question:", "a"])


@given(st.lists(ENDS, max_size=10).map("".join), st.lists(ENDS, max_size=5).map("".join))
@settings(max_examples=50)
def test_content_cannot_leave_its_quotation(text, source):
    block = passage_block(1, source, text)

    lines = block.splitlines()
    assert lines[0].startswith("[1] ")
    assert lines[-1] == ""
    assert all(line.startswith("> ") for line in lines[1:-1])


def test_the_frame_reads_as_documented():
    text = context_text(
        "Passages:", [passage_block(1, "a.md", "one\ntwo"), passage_block(2, "b.md", "三")], "Question:"
    )

    assert text == "Passages:\n\n[1] a.md\n> one\n> two\n\n[2] b.md\n> 三\n\nQuestion:\n"


def test_a_long_source_is_shortened():
    assert len(re.findall("s", passage_block(1, "s" * 5000, "t").splitlines()[0])) == 200
