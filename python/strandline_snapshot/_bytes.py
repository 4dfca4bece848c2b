"""Integers of the format. Positions go in and come out; nothing is read beyond ``end``."""

from __future__ import annotations

from blake3 import blake3

from .errors import Malformed

U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1


def hash_of(data: bytes) -> bytes:
    """The name of bytes."""
    return blake3(data).digest()


def take(data: bytes, at: int, size: int, end: int) -> tuple[bytes, int]:
    if size > end - at:
        raise Malformed(f"{size} bytes are promised at {at}, and {end - at} are left")
    return data[at : at + size], at + size


def little(data: bytes, at: int, size: int, end: int) -> tuple[int, int]:
    taken, at = take(data, at, size, end)
    return int.from_bytes(taken, "little"), at


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """LEB128 of at most 64 bits."""
    value = shift = 0
    while True:
        if at >= end:
            raise Malformed("it ends within a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise Malformed("a number has more than 64 bits")
    if value > U64_MAX:
        raise Malformed("a number has more than 64 bits")
    return value, at


def prefixed(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Bytes behind their length."""
    size, at = varint(data, at, end)
    return take(data, at, size, end)


def text_of(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("a text is not UTF-8") from None
