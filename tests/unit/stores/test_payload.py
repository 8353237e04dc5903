"""The Arrow table of passages: its types, and that reading it copies nothing, however it came."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.messages import PASSAGE_COLUMNS
from app.stores.contract import StoredPassage
from app.stores.payload import Hit, build_table, decode_tokens, encode_tokens, token_matrix


def table_of(*counts, dimension=4):
    rng = np.random.default_rng(0)
    matrices = [rng.standard_normal((count, dimension), np.float32).astype(np.float16) for count in counts]
    hits = [
        Hit(StoredPassage(f"d#{index}", f"text {index}", "s", "{}", encode_tokens(matrix)), "c", 0.5)
        for index, matrix in enumerate(matrices)
    ]
    return build_table(hits, dimension), [matrix.astype(np.float32) for matrix in matrices]


def address(array):
    return array.__array_interface__["data"][0]


def test_columns_and_types():
    table, _ = table_of(2, 0, 3)
    assert tuple(table.column_names) == PASSAGE_COLUMNS
    assert table.schema.field("token_embeddings").type == pa.list_(pa.fixed_shape_tensor(pa.float32(), [4]))
    assert table.schema.field("score").type == pa.float32()
    assert all(column.num_chunks == 1 for column in table.columns)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 5), max_size=6), st.data())
def test_token_matrix_gives_each_passage_its_rows(counts, data):
    table, matrices = table_of(*counts)
    start = data.draw(st.integers(0, len(counts)))
    stop = data.draw(st.integers(0, len(counts)))
    matrix, offsets = token_matrix(table, slice(start, stop))
    wanted = matrices[start:stop]
    assert len(offsets) == len(wanted) + 1
    for index, expected in enumerate(wanted):
        np.testing.assert_array_equal(matrix[offsets[index] : offsets[index + 1]], expected)


def test_no_passages():
    table, _ = table_of()
    assert table.num_rows == 0
    matrix, offsets = token_matrix(table)
    assert matrix.shape == (0, 4)
    assert offsets.tolist() == [0]


def test_reading_is_a_view_of_the_tables_buffer():
    table, _ = table_of(5, 3, 2)
    chunk = table.column("token_embeddings").chunk(0)
    matrix, offsets = token_matrix(table, slice(1, 3))
    assert address(matrix) == chunk.values.storage.values.buffers()[1].address + 5 * 4 * 4
    assert offsets.tolist() == [0, 3, 5]
    assert not matrix.flags.writeable


def test_a_sliced_table_reads_right():
    table, matrices = table_of(5, 3, 2)
    matrix, offsets = token_matrix(table.slice(1, 2))
    np.testing.assert_array_equal(matrix, np.concatenate(matrices[1:]))
    assert offsets.tolist() == [0, 3, 5]


def test_pickle_protocol_5_takes_the_tensor_out_of_band():
    table, _ = table_of(64, 64, dimension=64)
    before, _ = token_matrix(table)
    buffers = []
    head = pickle.dumps(table, protocol=5, buffer_callback=buffers.append)
    assert len(head) < 4096
    after, _ = token_matrix(pickle.loads(head, buffers=buffers))
    assert address(after) == address(before)


def test_arrow_ipc_maps_the_tensor():
    table, _ = table_of(64, 64, dimension=64)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    wire = sink.getvalue()
    matrix, _ = token_matrix(pa.ipc.open_stream(wire).read_all())
    assert wire.address <= address(matrix) < wire.address + wire.size
    np.testing.assert_array_equal(matrix, token_matrix(table)[0])


def test_several_chunks_and_steps_are_refused():
    table, _ = table_of(1, 1)
    with pytest.raises(ValueError, match="one chunk"):
        token_matrix(pa.concat_tables([table, table]))
    with pytest.raises(ValueError, match="step 1"):
        token_matrix(table, slice(0, 2, 2))


def test_float16_keeps_dot_products_within_a_thousandth():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((50, 384), np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    read, _ = decode_tokens([encode_tokens(rows)], 384)
    assert np.abs(read @ rows.T - rows @ rows.T).max() < 1e-3


def test_every_finite_float16_is_read_exactly():
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)]
    read, _ = decode_tokens([finite.tobytes()], 1)
    np.testing.assert_array_equal(read[:, 0], finite.astype(np.float32))
    assert np.signbit(read[:, 0]).tolist() == np.signbit(finite).tolist()
