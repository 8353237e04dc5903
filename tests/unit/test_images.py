"""Images in requests: what is let in, and what is refused without being unpacked."""

import base64
import io
import struct
import zlib

import pytest
from PIL import Image

from app.config.gateway import LimitsConfig
from app.errors import InvalidRequest
from app.images import check_images

LIMITS = LimitsConfig(max_images=2, max_image_bytes=5_000, max_image_pixels=10_000)


def uri(kind="PNG", size=(8, 8), said=None, noise=False):
    image = Image.effect_noise(size, 90).convert("RGB") if noise else Image.new("RGB", size, (200, 30, 30))
    held = io.BytesIO()
    image.save(held, kind)
    return f"data:image/{said or kind.lower()};base64,{base64.b64encode(held.getvalue()).decode()}"


def bomb(side=60_000):
    """A PNG of a few bytes whose header promises gigabytes."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    data = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )
    return "data:image/png;base64," + base64.b64encode(data).decode()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_the_three_types_are_let_in(kind):
    check_images([uri(kind)], LIMITS, "messages")


WRONG = {
    "address": ("https://images.example/cat.png", "send the image itself as a data URI"),
    "local address": ("http://169.254.169.254/latest", "nothing is fetched"),
    "file": ("file:///etc/passwd", "nothing is fetched"),
    "another type": (uri("PNG", said="gif"), "no type that is read here"),
    "svg": ("data:image/svg+xml;base64,PHN2Zz4=", "no type that is read here"),
    "not base64": ("data:image/png,abc", "no type that is read here"),
    "damaged base64": ("data:image/png;base64,@@@@", "not valid base64"),
    "no image": ("data:image/png;base64," + base64.b64encode(b"hello there").decode(), "cannot be read"),
    "empty": ("data:image/png;base64,", "cannot be read"),
    "a type that it is not": (uri("PNG", said="jpeg"), "holds another type"),
    "pixels": (uri("PNG", (101, 100)), "10100 pixels, over the limit of 10000"),
    "bytes": (uri("PNG", (90, 90), noise=True), "over the limit of 5000 bytes"),
    "a line": (uri("PNG", (1, 65)), "65 pixels long and 1 wide: send one at most 64 times"),
    "bomb": (bomb(), "more pixels than the limit of 10000"),
    "half a bomb": (bomb(11_000), "121000000 pixels, over the limit of 10000"),
}


@pytest.mark.parametrize("case", WRONG)
def test_all_else_is_refused_with_a_sentence(case):
    sent, words = WRONG[case]
    with pytest.raises(InvalidRequest, match=words) as caught:
        check_images([sent], LIMITS, "messages")
    assert sent[22:] not in caught.value.message or not sent[22:]
    assert caught.value.param == "messages"


def test_there_may_be_so_many():
    check_images([uri()] * 2, LIMITS, "messages")
    with pytest.raises(InvalidRequest, match="3 images, over the limit of 2"):
        check_images([uri()] * 3, LIMITS, "messages")
