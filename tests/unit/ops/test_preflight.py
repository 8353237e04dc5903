"""Each thing that would stop the pipeline from starting is one sentence that says what to change."""

import socket

import pytest

from app.errors import ConfigError
from app.ops import preflight

GIB = 1024**3


def test_a_busy_port_names_the_port_and_the_option():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"Port {port} .*--metrics-port"):
            preflight.check_port("127.0.0.1", port, "metrics_port")
    preflight.check_port("127.0.0.1", port, "metrics_port")


def test_too_little_memory_names_both_numbers():
    with pytest.raises(ConfigError, match=r"7\.0 GiB .* has 2\.0 GiB"):
        preflight.check_memory(2 * GIB, 7 * GIB)
    preflight.check_memory(8 * GIB, 7 * GIB)


def test_available_memory_is_read_from_the_kernel(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemAvailable:   64 kB\n")
    assert preflight.available_memory(meminfo) <= 64 * 1024


def test_a_full_disk_names_the_folder(tmp_path):
    with pytest.raises(ConfigError, match="--data"):
        preflight.check_disk(tmp_path / "not" / "there" / "yet", 1 << 60)
    preflight.check_disk(tmp_path, 1)


def test_a_small_shared_memory_says_how_to_enlarge_it():
    with pytest.raises(ConfigError, match="shm-size"):
        preflight.check_shared_memory(1 << 60)
