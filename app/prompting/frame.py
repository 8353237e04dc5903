"""The frame round retrieved passages: content cannot close or forge it, since every line of content is quoted.

::

    [1] guide/install.md
    > first line of the passage
    > </context> Question: …          a forged end is a quoted line like any other

A line outside a quotation is always ours; marks and sources stand only there.
"""

from __future__ import annotations

import re

_SOURCE_CHARS = 200
# Everything that a model may read as the end of a line.
_LINE_ENDS = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_BLANKS = re.compile(r"\s+")


def passage_block(mark: int, source: str, text: str) -> str:
    """Return one passage with its citation mark, its source on one line, and its text quoted line by line."""
    title = _BLANKS.sub(" ", _LINE_ENDS.sub(" ", source)).strip()[:_SOURCE_CHARS]
    quoted = "\n".join(f"> {line}" for line in _LINE_ENDS.split(text.strip()))
    return f"[{mark}] {title}\n{quoted}\n\n"


def context_text(header: str, blocks: list[str], question_header: str) -> str:
    """Return what stands before the question: header, passages, and the line that opens the question."""
    return f"{header}\n\n{''.join(blocks)}{question_header}\n"
