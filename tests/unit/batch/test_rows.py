"""Every row of a file is a request or an error with a sentence; none stops the reading."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.batch.places import Place
from app.batch.rows import Rows
from app.errors import BatonError, InvalidRequest

QUESTION = {"messages": [{"role": "user", "content": "hi"}]}


def read(tmp_path, *lines, max_bytes=1000, endpoint=""):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines))
    return list(Rows(Place.parse(str(path)), max_bytes, endpoint))


def test_plain_rows_prompts_and_openai_s_lines_become_requests(tmp_path):
    rows = read(
        tmp_path,
        QUESTION | {"profile": "fast"},
        {"custom_id": "b", "prompt": "hi", "max_tokens": 3},
        b"",
        {"custom_id": "c", "method": "POST", "url": "/v1/embeddings", "body": {"input": "x"}},
    )
    assert [row.error for row in rows] == [None] * 3
    assert [(row.number, row.custom_id) for row in rows] == [(0, "row-0"), (1, "b"), (2, "c")]
    assert rows[0].body == QUESTION | {"profile": "fast"}
    assert rows[1].body == QUESTION | {"max_tokens": 3}
    assert (rows[2].url, rows[2].body) == ("/v1/embeddings", {"input": "x"})


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"{broken", "Line 1 is not valid UTF-8 JSON (column 2)."),
        (b"\xff", "Line 1 is not valid UTF-8 JSON (column 1)."),
        (b"[1]", "Line 1 must be a JSON object."),
        (b'{"prompt": "' + b"x" * 2000 + b'"}', "Line 1 is longer than 1000 bytes: shorten it."),
        ({"max_tokens": 3}, "Line 1 needs either messages or prompt."),
        (QUESTION | {"prompt": "hi"}, "Line 1 needs either messages or prompt."),
        ({"prompt": " "}, "Line 1 has a prompt that is no text, or a blank one."),
        ({"prompt": "hi", "custom_id": 7}, "Line 1 has a custom_id that is no text of 1 to 512 characters."),
        ({"prompt": "hi", "stream": True}, "Line 1 asks for a stream: leave stream out."),
        ({"body": QUESTION, "url": "/v1/images"}, "Line 1 has a url other than /v1/chat/completions, "),
        ({"body": QUESTION, "url": "/v1/completions", "x": 1}, "Line 1 has the unknown field 'x' beside body."),
        ({"method": "GET", "url": "/v1/completions", "body": {}}, "Line 1 has another method than POST."),
        ({"method": "POST", "url": "/v1/completions"}, "Line 1 has no JSON object in body."),
    ],
)
def test_a_bad_row_is_told_and_the_next_one_is_read(tmp_path, line, sentence):
    bad, good = read(tmp_path, line, QUESTION)
    assert isinstance(bad.error, InvalidRequest)
    assert bad.error.message.startswith(sentence)
    assert (good.number, good.error) == (1, None)


def test_a_line_may_be_as_long_as_the_limit_and_no_byte_longer(tmp_path):
    exact = json.dumps({"prompt": "x" * (1000 - len('{"prompt": ""}'))}).encode()
    longer = exact.replace(b"x", b"xx", 1)
    fits, over, again, last = read(tmp_path, exact, longer, QUESTION, longer)
    assert (len(exact), fits.error, again.error) == (1000, None, None)
    assert all("longer than 1000 bytes" in row.error.message for row in (over, last))


def test_the_second_of_two_rows_with_one_custom_id_is_refused(tmp_path):
    first, second = read(tmp_path, *[{"custom_id": "a", "prompt": "hi"}] * 2)
    assert first.error is None
    assert second.error.message == "Line 2: the custom_id 'a' stands twice: give each its own."


def test_a_row_without_a_custom_id_or_with_null_gets_one_that_no_other_row_has(tmp_path):
    given = ({"prompt": "hi", "custom_id": name} for name in ("row-0", "row-1", "row-1-2", None, "row-2"))
    rows = read(
        tmp_path, {"prompt": "hi"}, b"{broken", *given, b'{"prompt": "hi", "custom_id": "\\u0072ow-7"}', QUESTION
    )
    assert [row.custom_id for row in rows] == [
        *("row-0-2", "row-1-3"),
        *("row-0", "row-1", "row-1-2", "row-5", "row-2"),
        *("row-7", "row-8"),
    ]
    assert [row.number for row in rows if row.error is not None] == [1]


def test_a_parquet_row_without_a_custom_id_gets_one_that_no_other_row_has(tmp_path):
    pq.write_table(pa.table({"prompt": ["a", "b", "c"], "custom_id": [None, "row-0", None]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"prompt": ["a", "b"]}), tmp_path / "b.parquet")
    named, bare = (list(Rows(Place.parse(str(tmp_path / f"{name}.parquet")), 1000)) for name in "ab")
    assert [row.custom_id for row in named] == ["row-0-2", "row-0", "row-2"]
    assert [row.custom_id for row in bare] == ["row-0", "row-1"]


def test_a_batch_for_one_endpoint_refuses_rows_for_others(tmp_path):
    line = {"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {"input": "x"}}
    (row,) = read(tmp_path, line, endpoint="/v1/chat/completions")
    assert row.error.message == "Line 1 asks for '/v1/embeddings', and this batch is for /v1/chat/completions."


def test_parquet_rows_are_read_as_columns_structs_or_json(tmp_path):
    table = pa.table(
        {
            "custom_id": ["a", "b", "c", None],
            "messages": [QUESTION["messages"], None, None, None],
            "prompt": [None, "hi", None, None],
            "rag": [None, '{"enabled": false}', "{broken", None],
            "max_tokens": [3, None, None, None],
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    rows = list(Rows(Place.parse(str(tmp_path / "rows.parquet")), 1000))
    assert rows[0].body == QUESTION | {"max_tokens": 3}
    assert rows[1].body == QUESTION | {"rag": {"enabled": False}}
    assert "not valid" in rows[2].error.message
    assert rows[3].error.message == "Row 4 needs either messages or prompt."


@pytest.mark.parametrize(
    ("cell", "stop"),
    [
        ("[INST]", "[INST]"),
        ("[/INST]", "[/INST]"),
        ("<|im_end|>", "<|im_end|>"),
        ("{", "{"),
        ("[1]", "[1]"),
        ("[]", "[]"),
        ("null", "null"),
        ("", ""),
        ('["[INST]", "</s>"]', ["[INST]", "</s>"]),
        (["[INST]"], ["[INST]"]),
    ],
)
def test_a_parquet_row_s_stop_is_what_it_is_over_http_or_a_list_as_json(tmp_path, cell, stop):
    pq.write_table(pa.table({"prompt": ["hi"], "stop": [cell]}), tmp_path / "rows.parquet")
    (row,) = Rows(Place.parse(str(tmp_path / "rows.parquet")), 1000)
    assert row.error is None
    assert row.body == QUESTION | {"stop": stop}


@pytest.mark.parametrize("name", ["rows.csv", "http://host/rows.jsonl"])
def test_other_files_and_stores_are_refused(name):
    with pytest.raises(InvalidRequest, match="name a file"):
        Place.parse(name)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(BatonError, match="does not exist"):
        list(Rows(Place.parse(str(tmp_path / "none.jsonl")), 10))


def test_a_file_that_is_no_parquet_is_told(tmp_path):
    (tmp_path / "rows.parquet").write_bytes(b"{}")
    with pytest.raises(InvalidRequest, match="is no whole Parquet file"):
        list(Rows(Place.parse(str(tmp_path / "rows.parquet")), 10))


def test_a_parquet_row_whose_text_is_none_is_told_and_the_others_are_read(tmp_path):
    texts = pa.array([b"a", b"\xff\xfe", b"c"]).view(pa.string())
    pq.write_table(pa.table({"prompt": texts}), tmp_path / "rows.parquet")
    rows = list(Rows(Place.parse(str(tmp_path / "rows.parquet")), 1000))
    assert [row.error is None for row in rows] == [True, False, True]
    assert rows[1].error.message == "Row 2 holds text that is not UTF-8."


def test_blank_lines_count_for_the_line_that_is_told_and_for_nothing_else(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "hi"}\n\n  \n{broken\n')
    first, second = Rows(Place.parse(str(path)), 1000)
    assert (first.error, first.number, second.number) == (None, 0, 1)
    assert second.error.message == "Line 4 is not valid UTF-8 JSON (column 2)."
