"""Packs: chunks, run indexes and filters. Nothing is believed before it has been hashed."""

from __future__ import annotations

import os
import re
import stat
from bisect import bisect_right
from collections import OrderedDict
from typing import BinaryIO, Iterator, NamedTuple, Optional

import lz4.block
import zstandard

from ._bytes import hash_of, little, prefixed, take, text_of, varint
from .errors import FormatError, Malformed, NewerVersion, Subsumed, TooNew

VERSION = 1
KEY_BYTES_MAX = 16 << 20
VALUE_BYTES_MAX = 1 << 30
RESTART_INTERVAL = 16

# A chunk is larger than 256 KiB only by its last entry; 1 KiB for numbers and restarts.
CHUNK_BYTES_MAX = (256 << 10) + KEY_BYTES_MAX + VALUE_BYTES_MAX + (1 << 10)

_HEADER = b"SLPK\x01\x00"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,249}\.pack", re.ASCII)
_OPEN_MAX = 16
_BLOCK_BYTES = 64
_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15

# What one byte can stand for at most: refuses a promised size before memory is taken for it.
_LZ4_RATIO_MAX = 255
_ZSTD_RATIO_MAX = 128 << 10
_ZSTD_WINDOW_MAX = 128 << 20
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

Entry = tuple  # (key, value), the value None for a tombstone


class ChunkRef(NamedTuple):
    """Where a chunk is, and what it holds."""

    pack: str
    offset: int
    stored_bytes: int
    plain_bytes: int
    entries: int
    tombstones: int
    hash: bytes
    first_key: bytes


class FilterRef(NamedTuple):
    """Where a run's filter is."""

    pack: str
    offset: int
    size: int
    hash: bytes


class RunIndex(NamedTuple):
    """The chunks of a run in order."""

    chunks: list
    filter: Optional[FilterRef]


class PackFolder:
    """The packs that a manifest names. At most 16 files are open at a time."""

    def __init__(self, folder: str, manifest: str):
        self._folder = folder
        self._manifest = manifest
        self._open: OrderedDict[str, tuple[BinaryIO, int]] = OrderedDict()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1][0].close()

    def path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Bytes of a pack; their place is compared with the file's length first."""
        file, length = self._file(name)
        if offset < len(_HEADER) or size > length - offset:
            what = f"{size} bytes at {offset} are named, and it has {length} bytes"
            raise FormatError(self.path(name), what)
        file.seek(offset)
        data = file.read(size)
        if len(data) != size:
            raise FormatError(self.path(name), f"ends within the bytes at {offset}")
        return data

    def _file(self, name: str) -> tuple[BinaryIO, int]:
        if name in self._open:
            self._open.move_to_end(name)
            return self._open[name]
        opened = self._open_file(name)
        self._open[name] = opened
        if len(self._open) > _OPEN_MAX:
            self._open.popitem(last=False)[1][0].close()
        return opened

    def _open_file(self, name: str) -> tuple[BinaryIO, int]:
        path = self.path(name)
        try:
            found = os.stat(path)
            if not stat.S_ISREG(found.st_mode):
                raise FormatError(path, "is no file")
            file = open(path, "rb")
        except FileNotFoundError:
            if not os.path.exists(self._manifest):
                raise Subsumed(f"{self._manifest} was deleted while it was read") from None
            raise FormatError(path, "is missing") from None
        try:
            _check_header(file.read(len(_HEADER)), path)
        except BaseException:
            file.close()
            raise
        return file, found.st_size


def _check_header(header: bytes, path: str) -> None:
    if len(header) != len(_HEADER) or header[:4] != _HEADER[:4]:
        raise FormatError(path, "does not begin with SLPK")
    version = int.from_bytes(header[4:6], "little")
    if version > VERSION:
        raise NewerVersion(path, version, VERSION)
    if version != VERSION:
        raise FormatError(path, f"has version {version}, which there never was")


def check_pack_name(name: str) -> str:
    """A pack's name leads to a file in its folder and nowhere else."""
    if not _NAME.fullmatch(name):
        raise Malformed(f"this is no name of a pack: {name[:100]!r}")
    return name


class OpenRun:
    """A run whose index has been read and verified."""

    def __init__(self, packs: PackFolder, run):
        self.packs = packs
        self.run = run
        self.file = packs.path(check_pack_name(run.pack))
        where = f"run index at {run.index_offset}"
        data = packs.read(run.pack, run.index_offset, run.index_bytes)
        if hash_of(data) != run.index_hash:
            raise FormatError(self.file, f"{where}: its hash does not fit its bytes")
        try:
            self.index = decode_index(data)
        except TooNew as error:
            raise NewerVersion(f"{self.file}: {where}", error.needs, VERSION) from None
        except Malformed as error:
            raise FormatError(self.file, f"{where}: {error}") from None
        self._first_keys = [chunk.first_key for chunk in self.index.chunks]

    def entries(self, first: bytes, after: Optional[bytes]) -> Iterator[Entry]:
        """Entries with keys from ``first`` on, before ``after``; one chunk at a time."""
        chunks = self.index.chunks
        place = max(bisect_right(self._first_keys, first) - 1, 0)
        for place in range(place, len(chunks)):
            chunk = chunks[place]
            if after is not None and chunk.first_key >= after:
                return
            for entry in self.chunk(place):
                if entry[0] < first:
                    continue
                if after is not None and entry[0] >= after:
                    return
                yield entry

    def chunk(self, place: int) -> Iterator[Entry]:
        """All entries of a chunk. Its end is compared with the chunk after it."""
        chunk = self.index.chunks[place]
        behind = self._first_keys[place + 1] if place + 1 < len(self._first_keys) else None
        try:
            stored = self.packs.read(chunk.pack, chunk.offset, chunk.stored_bytes)
            plain = decompress(stored, chunk.plain_bytes)
            if hash_of(plain) != chunk.hash:
                raise Malformed("its hash does not fit its bytes")
            yield from _counted(plain, chunk, behind)
        except Malformed as error:
            what = f"chunk at {chunk.offset}: {error}"
            raise FormatError(self.packs.path(chunk.pack), what) from None

    def filter(self) -> Optional[Filter]:
        place = self.index.filter
        if place is None:
            return None
        data = self.packs.read(place.pack, place.offset, place.size)
        try:
            if hash_of(data) != place.hash:
                raise Malformed("its hash does not fit its bytes")
            return Filter(data)
        except Malformed as error:
            what = f"filter at {place.offset}: {error}"
            raise FormatError(self.packs.path(place.pack), what) from None


def _counted(plain: bytes, chunk: ChunkRef, behind: Optional[bytes]) -> Iterator[Entry]:
    entries = tombstones = 0
    for key, value in decode_chunk(plain):
        if not entries and key != chunk.first_key:
            raise Malformed("its first key is not that of the index")
        entries += 1
        tombstones += value is None
        if behind is not None and key >= behind:
            raise Malformed("a key is not below the chunk after it")
        yield key, value
    if (entries, tombstones) != (chunk.entries, chunk.tombstones):
        raise Malformed("it has not as many entries as the index says")


def decompress(stored: bytes, plain_bytes: int) -> bytes:
    """The plain bytes of a chunk as stored. Takes no more memory than ``plain_bytes``."""
    kind, rest = stored[0], stored[1:]
    if kind == 0:
        plain = rest
    elif kind == 1:
        plain = _lz4(rest, plain_bytes)
    elif kind == 2:
        plain = _zstd(rest, plain_bytes)
    else:
        raise Malformed(f"compression {kind} is not known")
    if len(plain) != plain_bytes:
        raise Malformed(f"it has {len(plain)} plain bytes, not {plain_bytes}")
    return plain


def _lz4(block: bytes, plain_bytes: int) -> bytes:
    if plain_bytes > _LZ4_RATIO_MAX * len(block):
        raise Malformed(f"{len(block)} bytes of LZ4 can't be {plain_bytes} plain ones")
    try:
        return lz4.block.decompress(block, uncompressed_size=plain_bytes)
    except (lz4.block.LZ4BlockError, ValueError, OverflowError):
        raise Malformed("its LZ4 block is broken") from None


def _zstd(frame: bytes, plain_bytes: int) -> bytes:
    if frame[:4] != _ZSTD_MAGIC:
        raise Malformed("it is no Zstandard frame")
    if plain_bytes > _ZSTD_RATIO_MAX * len(frame):
        raise Malformed(f"{len(frame)} bytes of Zstandard can't be {plain_bytes} plain ones")
    try:
        size = zstandard.get_frame_parameters(frame).content_size
        # What the frame itself says is allocated whatever is asked for: compare it first.
        if size not in (plain_bytes, zstandard.CONTENTSIZE_UNKNOWN):
            raise Malformed(f"its frame promises {size} plain bytes, not {plain_bytes}")
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX)
        return decompressor.decompress(
            frame, max_output_size=plain_bytes, allow_extra_data=False
        )
    except zstandard.ZstdError:
        raise Malformed("its Zstandard frame is broken") from None


def decode_chunk(plain: bytes) -> Iterator[Entry]:
    """The entries of a chunk, in order. Every rule of the layout is checked on the way."""
    end, offsets = _restarts(plain)
    at = number = 0
    key = b""
    while at < end:
        begin = at
        shared, at = varint(plain, at, end)
        size, at = varint(plain, at, end)
        if shared + size > KEY_BYTES_MAX:
            raise Malformed("a key is too large")
        rest, at = take(plain, at, size, end)
        if number % RESTART_INTERVAL == 0:
            if shared or next(offsets, None) != begin:
                raise Malformed("its restarts are not where they must be")
        elif shared > len(key) or (size and shared < len(key) and rest[0] == key[shared]):
            raise Malformed("a key does not share what it could")
        before, key = key, key[:shared] + rest
        if number and key <= before:
            raise Malformed("its keys do not ascend")
        size, at = varint(plain, at, end)
        value = None
        if size:
            if size - 1 > VALUE_BYTES_MAX:
                raise Malformed("a value is too large")
            value, at = take(plain, at, size - 1, end)
        number += 1
        yield key, value
    if next(offsets, None) is not None:
        raise Malformed("its restarts are not where they must be")


def _restarts(plain: bytes) -> tuple[int, Iterator[int]]:
    """Where the entries end, and the offsets of restarts."""
    if len(plain) < 4:
        raise Malformed("it is too short")
    count = int.from_bytes(plain[-4:], "little")
    end = len(plain) - 4 - 4 * count
    if count == 0 or end <= 0:
        raise Malformed("it can't have so many restarts")
    places = range(end, len(plain) - 4, 4)
    return end, (int.from_bytes(plain[at : at + 4], "little") for at in places)


def decode_index(data: bytes) -> RunIndex:
    end = len(data)
    version, at = little(data, 0, 1, end)
    if version > VERSION:
        raise TooNew(version)
    if version != VERSION:
        raise Malformed(f"has version {version}, which there never was")
    count, at = varint(data, at, end)
    packs = []
    for _ in range(count):
        name, at = prefixed(data, at, end)
        packs.append(check_pack_name(text_of(name)))
    count, at = varint(data, at, end)
    chunks: list[ChunkRef] = []
    for _ in range(count):
        chunk, at = _chunk_ref(data, at, packs)
        if chunks and chunk.first_key <= chunks[-1].first_key:
            raise Malformed("first keys do not ascend")
        chunks.append(chunk)
    kept, at = _filter_ref(data, at, packs)
    if at != end:
        raise Malformed("something follows its end")
    return RunIndex(chunks, kept)


def _chunk_ref(data: bytes, at: int, packs: list) -> tuple[ChunkRef, int]:
    end = len(data)
    pack, at = _pack(data, at, packs)
    offset, at = little(data, at, 8, end)
    stored_bytes, at = little(data, at, 4, end)
    plain_bytes, at = little(data, at, 4, end)
    entries, at = little(data, at, 4, end)
    tombstones, at = little(data, at, 4, end)
    name, at = take(data, at, 32, end)
    first_key, at = prefixed(data, at, end)
    if not stored_bytes or plain_bytes > CHUNK_BYTES_MAX or len(first_key) > KEY_BYTES_MAX:
        raise Malformed("a chunk's size is not within limits")
    if not entries or tombstones > entries:
        raise Malformed("a chunk's numbers of entries can't be")
    sizes = (offset, stored_bytes, plain_bytes, entries, tombstones)
    return ChunkRef(pack, *sizes, name, first_key), at


def _filter_ref(data: bytes, at: int, packs: list) -> tuple[Optional[FilterRef], int]:
    end = len(data)
    kind, at = little(data, at, 1, end)
    if kind == 0:
        return None, at
    if kind != 1:
        raise Malformed(f"filter {kind} is not known")
    pack, at = _pack(data, at, packs)
    offset, at = little(data, at, 8, end)
    size, at = little(data, at, 4, end)
    name, at = take(data, at, 32, end)
    return FilterRef(pack, offset, size, name), at


def _pack(data: bytes, at: int, packs: list) -> tuple[str, int]:
    number, at = varint(data, at, len(data))
    if number >= len(packs):
        raise Malformed("a pack is not in its list")
    return packs[number], at


class Filter:
    """Which keys a run surely doesn't hold."""

    def __init__(self, data: bytes):
        self._blocks, at = little(data, 0, 4, len(data))
        if not self._blocks or len(data) - at != self._blocks * _BLOCK_BYTES:
            raise Malformed("its length does not fit its number of blocks")
        self._data = data

    def may_hold(self, key: bytes) -> bool:
        block, bits = filter_bits(key, self._blocks)
        begin = 4 + block * _BLOCK_BYTES
        return all(self._data[begin + bit // 8] >> (bit % 8) & 1 for bit in bits)


def filter_bits(key: bytes, blocks: int) -> tuple[int, list]:
    """The block of a key, and its bits in it."""
    print_ = key_print(key)
    g = mix((print_ + _GOLDEN) & _MASK)
    return print_ * blocks >> 64, [(g >> 9 * i) % 512 for i in range(6)]


def key_print(key: bytes) -> int:
    """64 bits drawn from a key."""
    h = len(key) * _GOLDEN & _MASK
    for at in range(0, len(key), 8):
        h = mix(h ^ int.from_bytes(key[at : at + 8], "little"))
    return h


def mix(z: int) -> int:
    """The finalizer of MurmurHash3."""
    z ^= z >> 33
    z = z * 0xFF51AFD7ED558CCD & _MASK
    z ^= z >> 33
    z = z * 0xC4CEB9FE1A85EC53 & _MASK
    return z ^ z >> 33
