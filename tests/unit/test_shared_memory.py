"""Only segments that came after us and that nobody maps are removed."""

from app.deployments.shared_memory import remove_orphans, segments


def test_only_new_and_unmapped_segments_go(tmp_path):
    memory, processes = tmp_path / "shm", tmp_path / "proc"
    (processes / "42").mkdir(parents=True)
    (processes / "self").mkdir()
    memory.mkdir()
    for name in ("psm_old", "psm_mapped", "psm_orphan", "sem.other"):
        (memory / name).write_bytes(b"x")
    (processes / "42" / "maps").write_text("7f00-7f01 rw-s 00000000 00:19 3 /dev/shm/psm_mapped\n")
    assert remove_orphans(frozenset({"psm_old"}), memory, processes) == ["psm_orphan"]
    assert segments(memory) == {"psm_old", "psm_mapped"}
    assert (memory / "sem.other").exists()
