"""The mark that some programs put before UTF-8, which JSON has no word for."""

_MARK = b"\xef\xbb\xbf"


def without_mark(raw: bytes) -> bytes:
    """Return the bytes behind the byte order mark, if there is one."""
    return raw.removeprefix(_MARK)
