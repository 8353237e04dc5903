"""A damaged image behind a sound header is the caller's to mend, whatever Pillow says of it."""

import io
import struct
import zlib

import pytest
from PIL import Image

from app.embedders.clip import _decoded
from app.errors import InvalidRequest

SINK = io.BytesIO()
Image.effect_noise((400, 400), 90).convert("RGB").save(SINK, "PNG")
PNG = SINK.getvalue()
END = 12  # bytes of the last chunk


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


BOMB = chunk(b"zTXt", b"k\0\0" + zlib.compress(b"x" * (80 << 20)))
DAMAGED = {
    "cut off": PNG[: len(PNG) // 2],
    "a chunk of no kind": PNG.replace(b"IDAT", b"\1\2\3\4").replace(b"\1\2\3\4", b"IDAT", 1),
    "text that unpacks into megabytes": PNG[:-END] + BOMB + PNG[-END:],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_image_is_refused_by_its_place(name):
    with pytest.raises(InvalidRequest, match="Image 3 is damaged: send it again"):
        _decoded(3, DAMAGED[name])


def test_a_whole_one_is_read():
    assert _decoded(0, PNG).size == (400, 400)
