"""Readers: what is read, and how what cannot be read is told."""

import math
import os
from datetime import date
from decimal import Decimal

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.errors import InvalidRequest
from app.ingestion import readers
from app.ingestion.documents import Document, parse_document
from app.ingestion.readers import BadRow, Row, count_documents, read_rows, split_front_matter


def read(*paths):
    return [row.document if isinstance(row, Row) else row for row in read_rows(paths)]


def write(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_jsonl_rows_become_documents(tmp_path):
    rows = [
        {"id": "a", "text": "zebra", "title": "T", "price": 5, "tags": [1]},
        {"text": "斑马", "metadata": {"lang": "zh"}},
    ]
    path = write(tmp_path, "rows.jsonl", b"\xef\xbb\xbf" + b"\n\n".join(map(orjson.dumps, rows)))
    first, second = read(path)
    assert first == Document("a", "zebra", "T", "rows.jsonl", {"price": 5})
    assert (second.text, second.metadata, len(second.id)) == ("斑马", {"lang": "zh"}, 24)
    assert count_documents([path]) == 2


def test_bad_lines_are_told_with_their_number(tmp_path):
    lines = [
        b'{"text": "good"}',
        b"{broken",
        b"",
        b"[1]",
        b'{"text": ""}',
        b'{"text": 5}',
        b'{"text": "\\ud800"}',
        b"\xff",
        b'{"text": "x", "n": ' + b"9" * 400 + b"}",
        b'{"text": "x", "n": ' + b"9" * 40 + b"}",
    ]
    path = write(tmp_path, "rows.jsonl", b"\n".join([*lines, b'{"text": "last"}']))
    found = read(path)
    assert [row.line for row in found if isinstance(row, BadRow)] == [2, 4, 5, 6, 7, 8, 9, 10]
    assert [row.text for row in found if isinstance(row, Document)] == ["good", "last"]
    assert str(found[3]) == "rows.jsonl:5: row.text is missing or blank"
    assert str(found[7]) == "rows.jsonl:9: holds a number that is too large"
    assert "row.metadata.'n' must be text, true, false, or a number from -2^53 to 2^53" in str(found[8])
    assert count_documents([path]) == len(found)


def test_a_line_too_long_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "_MAX_LINE_BYTES", 64)
    long = b'{"text": "' + b"x" * 500 + b'"}'
    path = write(tmp_path, "rows.jsonl", b'{"text": "a"}\n' + long + b'\n{"text": "b"}\n' + long)
    found = read(path)
    assert [row.line if isinstance(row, BadRow) else row.text for row in found] == ["a", 2, "b", 4]


def test_parquet_rows_become_documents(tmp_path):
    table = pa.table(
        {
            "id": [1, 2],
            "text": ["zebra", None],
            "day": [date(2024, 5, 1), None],
            "price": [Decimal("2.50"), None],
            "weight": [math.nan, 1.5],
            "list": [[1], [2]],
        }
    )
    path = tmp_path / "rows.parquet"
    pq.write_table(table, path)
    good, bad = read(path)
    assert good == Document("1", "zebra", "", "rows.parquet", {"day": "2024-05-01", "price": 2.5})
    assert bad == BadRow("rows.parquet", 2, "row.text is missing or blank")
    assert count_documents([path]) == 2


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"body": ["a"]}, "has no column of texts named 'text'"),
        ({"text": [["a"]]}, "has no column of texts named 'text'"),
        ({"text": ["a"], "metadata": [{"tags": ["a"]}]}, "has a column 'metadata' of lists"),
        ({"text": ["a"], "id": [["a"]]}, "has a column 'id' of lists"),
    ],
)
def test_parquet_columns_that_fit_no_document_are_told(tmp_path, columns, reason):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(columns), path)
    (row,) = read(path)
    assert (row.file, row.line) == ("rows.parquet", 0)
    assert row.reason.startswith(reason)


def test_markdown_has_front_matter(tmp_path):
    path = write(
        tmp_path,
        "guide/a.md",
        '---\ntitle: A: guide\nprice: 5\nzip: "012"\ndraft: true\n# note\nempty:\n---\n# Head\nText',
    )
    (document,) = read(tmp_path)
    assert document == Document(
        "guide/a.md", "# Head\nText", "A: guide", "guide/a.md", {"price": 5, "zip": "012", "draft": True}
    )
    assert read(path)[0].id == "a.md"


@pytest.mark.parametrize("text", ["no front matter", "---\nnever closed: 1\ntext", "--- \ntext"])
def test_text_without_front_matter_stays(text):
    assert split_front_matter(text) == ({}, text)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("1.5", 1.5),
        ("-3", -3),
        ("nan", "nan"),
        ("inf", "inf"),
        ("1_0", "1_0"),
        ("'5'", "5"),
        ("False", False),
        ("9" * 400, math.inf),
        ("-1e999", -math.inf),
    ],
)
def test_front_matter_values(raw, value):
    assert split_front_matter(f"---\nkey: {raw}\n---\n")[0] == {"key": value}


def test_folders_are_walked_in_order_and_hidden_files_left_out(tmp_path):
    for name in ("b.txt", "a/c.md", ".git/d.txt", "a/.e.txt", "f.png"):
        write(tmp_path, name, "text")
    assert [row.id for row in read(tmp_path)] == ["a/c.md", "b.txt"]
    assert count_documents([tmp_path]) == 2


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.txt", b"caf\xe9", "is not UTF-8 (byte 3)"),
        ("a.txt", b"  \n", "row.text is missing or blank"),
        ("a.parquet", b"not parquet", "is not a readable Parquet file"),
        ("a.png", b"x", "is not a file of a known kind"),
        ("a.md", b"---\nid: x\n---\n", "row.text is missing or blank"),
    ],
)
def test_bad_files_are_told(tmp_path, name, content, reason):
    (row,) = read(write(tmp_path, name, content))
    assert isinstance(row, BadRow)
    assert (row.file, row.line) == (name, 0)
    assert row.reason.startswith(reason)


def test_a_file_that_vanished_is_told(tmp_path):
    assert read(tmp_path / "gone.txt") == [BadRow("gone.txt", 0, "cannot be read: No such file or directory")]


# --- documents ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (5, "d must be an object"),
        ({}, "d.text is missing or blank"),
        ({"text": "\u200b\u200d \ufeff"}, "d.text is missing or blank"),
        ({"text": "\x01\x02\n"}, "d.text is missing or blank"),
        ({"text": "x", "id": ""}, "d.id must be 1 to 256"),
        ({"text": "x", "id": "a\n"}, "d.id must be 1 to 256"),
        ({"text": "x", "id": "a" * 257}, "d.id must be 1 to 256"),
        ({"text": "x", "id": True}, "d.id must be 1 to 256"),
        ({"text": "x", "source": 5}, "d.source must be text"),
        ({"text": "x\0"}, "d.text holds a NUL"),
        ({"text": "x" * (8 * 2**20 + 1)}, "d.text is longer than"),
        ({"text": "字" * (3 * 2**20)}, "d.text is larger than 8 MiB"),
        ({"text": "x", "metadata": [1]}, "d.metadata must be an object"),
        ({"text": "x", "metadata": {"a": [1]}}, "d.metadata.'a' must be text"),
        ({"text": "x", "metadata": {"a": math.inf}}, "d.metadata.'a' must be text"),
        ({"text": "x", "metadata": {"a": math.nan}}, "d.metadata.'a' must be text"),
        ({"text": "x", "metadata": {"a": 2**60}}, "d.metadata.'a' must be text"),
        ({"text": "x", "metadata": {"a": 10**400}}, "d.metadata.'a' must be text, true, false, or a number from -2^53"),
        ({"text": "x", "metadata": {"a": -1e40}}, "d.metadata.'a' must be text, true, false, or a number from -2^53"),
        ({"text": "x", "metadata": {"and": 1}}, "d.metadata has the key 'and', with which filters are joined"),
        ({"text": "x", "or": 1}, "d.metadata has the key 'or', with which filters are joined"),
        ({"text": "x", "metadata": {"not": True}}, "d.metadata has the key 'not', with which filters are joined"),
        ({"text": "x", "metadata": {"a": "y" * 2000}}, "d.metadata.'a' is longer than"),
        ({"text": "x", "metadata": {"": 1}}, "d.metadata has a key"),
        ({"text": "x", "metadata": {f"k{n}": n for n in range(65)}}, "d.metadata has more than 64 keys"),
    ],
)
def test_faulty_documents_are_refused_with_their_path(raw, sentence):
    with pytest.raises(InvalidRequest) as caught:
        parse_document(raw, "d")
    assert str(caught.value).startswith(sentence)


def test_the_hash_tells_any_change():
    base = {"id": "a", "text": "x", "title": "t", "source": "s", "metadata": {"k": 1, "m": 2}}
    changes = [{"text": "y"}, {"title": "u"}, {"source": "v"}, {"metadata": {"k": True, "m": 2}}, {"metadata": {}}]
    hashes = {parse_document({**base, **change}, "d").content_hash("1") for change in [{}, *changes]}
    assert len(hashes) == 6
    assert parse_document(base, "d").content_hash("1") not in {parse_document(base, "d").content_hash("2")}
    swapped = parse_document({**base, "metadata": {"m": 2, "k": 1}}, "d")
    assert swapped.content_hash("1") == parse_document(base, "d").content_hash("1")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("empty", None, "holds no file of a known kind (.jsonl, .markdown, .md, .ndjson, .parquet, .txt)"),
        ("unknown/a.pdf", "x", "holds no file of a known kind (.jsonl, .markdown, .md, .ndjson, .parquet, .txt)"),
        ("blank/a.jsonl", "\n\n", "holds no document"),
        ("a.jsonl", "", "holds no document"),
    ],
)
def test_a_path_that_holds_nothing_is_told(tmp_path, name, content, reason):
    given = tmp_path / name.partition("/")[0]
    if content is None:
        given.mkdir()
    else:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    whole = tmp_path / "whole.txt"
    whole.write_text("A zebra.")
    bad, document = read(given, whole)
    assert (bad.file, bad.line, bad.reason) == (str(given), 0, reason)
    assert document.text == "A zebra."


def test_what_is_no_regular_file_is_told_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "rows.jsonl")
    (bad,) = read(tmp_path / "rows.jsonl")
    assert str(bad) == "rows.jsonl: is no regular file: write what it gives into one first"
    assert count_documents([tmp_path / "rows.jsonl"]) == 1
