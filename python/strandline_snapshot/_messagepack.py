"""As much of MessagePack as framed records need, for bytes that nobody vouches for.

A general decoder builds whatever the bytes say, and only then can the result be looked at. This
one is told what must come next: it builds nothing else, skips unknown fields without building
anything, never calls itself, and takes memory only for bytes that are there.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

from ._bytes import text_of
from .errors import Malformed

Field = Callable[["Reader"], Any]

# Tags with a length of so many bytes behind them.
_TEXT = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_BINARY = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_ARRAY = {0xDC: 2, 0xDD: 4}
_MAP = {0xDE: 2, 0xDF: 4}
_UNSIGNED = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
# Signed integers are read where they are not negative.
_SIGNED = {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
# All others: bytes that follow the tag.
_FIXED = {
    **_UNSIGNED,
    **_SIGNED,
    **{0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8},
    **{0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17},
}
_EXTENSION = {0xC7: 1, 0xC8: 2, 0xC9: 4}


class Reader:
    """Reads one value after another."""

    def __init__(self, data: bytes):
        self._data = data
        self._at = 0

    def done(self) -> bool:
        return self._at == len(self._data)

    def uint(self, bits: int) -> int:
        tag = self._tag()
        if tag < 0x80:
            value = tag
        elif tag in _UNSIGNED:
            value = self._number(_UNSIGNED[tag])
        elif tag in _SIGNED:
            size = _SIGNED[tag]
            value = self._number(size)
            if value >> (8 * size - 1):
                raise Malformed("a number is negative")
        else:
            raise Malformed(f"a number is promised, not tag {tag:#04x}")
        if value >> bits:
            raise Malformed(f"a number has more than {bits} bits")
        return value

    def boolean(self) -> bool:
        tag = self._tag()
        if tag not in (0xC2, 0xC3):
            raise Malformed(f"yes or no is promised, not tag {tag:#04x}")
        return tag == 0xC3

    def text(self) -> str:
        tag = self._tag()
        if 0xA0 <= tag <= 0xBF:
            size = tag & 0x1F
        else:
            size = self._size(tag, _TEXT, "a text")
        return text_of(self._take(size))

    def binary(self) -> bytes:
        return self._take(self._size(self._tag(), _BINARY, "bytes"))

    def binary_of(self, size: int) -> bytes:
        value = self.binary()
        if len(value) != size:
            raise Malformed(f"{size} bytes are promised, not {len(value)}")
        return value

    def array_size(self) -> int:
        tag = self._tag()
        if 0x90 <= tag <= 0x9F:
            return tag & 0x0F
        return self._size(tag, _ARRAY, "an array")

    def map_size(self) -> int:
        tag = self._tag()
        if 0x80 <= tag <= 0x8F:
            return tag & 0x0F
        return self._size(tag, _MAP, "a map")

    def optional(self, field: Field) -> Optional[Any]:
        if self._data[self._at : self._at + 1] == b"\xc0":
            self._at += 1
            return None
        return field(self)

    def array(self, field: Field) -> list:
        return [field(self) for _ in range(self.array_size())]

    def fields(self, known: dict[str, Field]) -> dict[str, Any]:
        """A map with all the known fields, each once, and others that are skipped."""
        found: dict[str, Any] = {}
        for _ in range(self.map_size()):
            name = self.text()
            field = known.get(name)
            if field is None:
                self.skip()
            elif name in found:
                raise Malformed(f"field `{name}` is there twice")
            else:
                try:
                    found[name] = field(self)
                except Malformed as error:
                    raise Malformed(f"{name}: {error}") from None
        for name in known:
            if name not in found:
                raise Malformed(f"field `{name}` is missing")
        return found

    def skip(self) -> None:
        """Passes over one value with all that is in it."""
        pending = 1
        while pending:
            tag = self._tag()
            pending -= 1
            if tag < 0x80 or tag >= 0xE0:
                continue
            if tag <= 0x8F:
                pending += 2 * (tag & 0x0F)
            elif tag <= 0x9F:
                pending += tag & 0x0F
            elif tag <= 0xBF:
                self._pass(tag & 0x1F)
            elif tag in _FIXED:
                self._pass(_FIXED[tag])
            elif tag in _ARRAY:
                pending += self._number(_ARRAY[tag])
            elif tag in _MAP:
                pending += 2 * self._number(_MAP[tag])
            elif tag in _EXTENSION:
                self._pass(1 + self._number(_EXTENSION[tag]))
            else:
                self._pass(self._size(tag, {**_TEXT, **_BINARY}, "a value"))

    def _size(self, tag: int, tags: dict[int, int], what: str) -> int:
        if tag not in tags:
            raise Malformed(f"{what} is promised, not tag {tag:#04x}")
        return self._number(tags[tag])

    def _tag(self) -> int:
        return self._number(1)

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def _take(self, size: int) -> bytes:
        begin = self._at
        self._pass(size)
        return self._data[begin : self._at]

    def _pass(self, size: int) -> None:
        if size > len(self._data) - self._at:
            raise Malformed("it ends within a value")
        self._at += size


def uint(bits: int) -> Field:
    return lambda reader: reader.uint(bits)


def binary_of(size: int) -> Field:
    return lambda reader: reader.binary_of(size)


def array_of(field: Field) -> Field:
    return lambda reader: reader.array(field)


def optional(field: Field) -> Field:
    return lambda reader: reader.optional(field)


boolean: Field = Reader.boolean
text: Field = Reader.text
binary: Field = Reader.binary
