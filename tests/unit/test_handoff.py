"""A payload outside the object store counts as copied (a mapped one needs Ray: tests/app/test_pipeline.py)."""

import numpy as np
import pyarrow as pa

from app.handoff import HandoffMeter
from app.messages import Retrieved
from app.metrics import MemoryMetrics


def test_a_table_on_the_heap_counts_as_a_copy():
    metrics = MemoryMetrics()
    table = pa.table({"text": ["x"] * 1000, "score": np.zeros(1000, np.float32)})
    assert HandoffMeter(metrics).record("retriever-gateway", Retrieved(table, 4), 0.0) == "inline"
    assert metrics.total("baton_handoffs_total", hop="retriever-gateway", path="inline") == 1
    assert metrics.total("baton_handoff_bytes_total", path="inline") == table.nbytes


def test_an_empty_table_is_no_fault():
    assert HandoffMeter(MemoryMetrics()).record("retriever-gateway", Retrieved(pa.table({}), 4), 0.0) == "inline"
