"""Images in requests: data URIs of PNG, JPEG or WebP, checked before anything decodes them.

Nothing here fetches: an address is refused. Only the header is read to learn size and type, so an image that would
unpack into gigabytes costs nothing.
"""

from __future__ import annotations

import base64
import binascii
import io
import re
import warnings
from collections.abc import Sequence
from typing import Any

from app.config.gateway import LimitsConfig
from app.errors import InvalidRequest

_DATA_URI = re.compile(r"data:image/(png|jpeg|webp);base64,", re.IGNORECASE)
_FORMATS = {"png": "PNG", "jpeg": "JPEG", "webp": "WEBP"}
#: Times the shorter side. Models scale by that one: a line of 16 million pixels would become a thousand gigabytes.
_LONGEST_SIDE = 64
_TYPES = "image/png, image/jpeg or image/webp"


def check_images(uris: Sequence[str], limits: LimitsConfig, param: str) -> None:
    """Refuse images over the limits, of other types, damaged ones, and addresses. Raises InvalidRequest."""
    if len(uris) > limits.max_images:
        raise InvalidRequest(
            f"The request holds {len(uris)} images, over the limit of {limits.max_images}.", param=param
        )
    for place, uri in enumerate(uris):
        _check(f"Image {place}", uri, limits, param)


def _check(name: str, uri: str, limits: LimitsConfig, param: str) -> None:
    def fault(sentence: str) -> InvalidRequest:
        return InvalidRequest(f"{name} {sentence}", param=param)

    if uri[:5].lower() != "data:":
        raise fault("is an address: nothing is fetched here, send the image itself as a data URI.")
    declared = _DATA_URI.match(uri[:64])
    if declared is None:
        raise fault(f"is of no type that is read here: send data:<type>;base64,… with {_TYPES}.")
    # Before anything is decoded, by the length of the text; base64's padding is up to two bytes of it.
    if 3 * (len(uri) - declared.end()) // 4 > limits.max_image_bytes + 2:
        raise fault(f"is over the limit of {limits.max_image_bytes} bytes.")
    try:
        data = image_bytes(uri)
    except ValueError:
        raise fault("is not valid base64.") from None
    if (sentence := _header_fault(data, declared.group(1).lower(), limits)) is not None:
        raise fault(sentence)


def _header_fault(data: bytes, declared: str, limits: LimitsConfig) -> str | None:
    try:
        with opened(data) as image:
            kind, pixels, sides = image.format, image.width * image.height, sorted(image.size)
    except OverflowError:
        return f"has far more pixels than the limit of {limits.max_image_pixels}."
    except OSError:
        return f"cannot be read: its bytes are no {_TYPES}."
    if kind != _FORMATS[declared]:
        return f"says image/{declared} and holds another type: write its own."
    if pixels > limits.max_image_pixels:
        return f"has {pixels} pixels, over the limit of {limits.max_image_pixels}."
    if sides[1] > _LONGEST_SIDE * sides[0]:
        return f"is {sides[1]} pixels long and {sides[0]} wide: send one at most {_LONGEST_SIDE} times as long as wide."
    return None


def image_bytes(uri: str) -> bytes:
    """Return the bytes of a data URI. Raises ValueError where they are not base64."""
    try:
        return base64.b64decode(uri.partition(",")[2], validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error


def opened(data: bytes) -> Any:
    """Return Pillow's image, of which only the header is read yet.

    Raises OSError where it is none of our types, OverflowError where it has more pixels than Pillow ever reads.
    """
    from PIL import Image

    with warnings.catch_warnings():  # of Pillow's own limit: ours is checked next, on what the header says
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            return Image.open(io.BytesIO(data), formats=tuple(_FORMATS.values()))
        except Image.DecompressionBombError as error:
            raise OverflowError("too many pixels") from error
        except (SyntaxError, ValueError) as error:
            raise OSError("not an image") from error
