"""Framed records: files that check themselves, and what is in them."""

from __future__ import annotations

import os
import stat
from typing import Any, NamedTuple, Optional

from . import _messagepack as mp
from ._bytes import hash_of
from .errors import FormatError, Malformed, NewerVersion

VERSION = 1

_HEADER_BYTES = 16
_HASH_BYTES = 32
_MANIFEST_BYTES_MAX = 256 << 20
_RECORD_BYTES_MAX = 64 << 10
_SECTION_NAME_BYTES_MAX = 1024


class Range(NamedTuple):
    """Keys from ``first`` on and before ``after``; None: there is no end."""

    first: bytes
    after: Optional[bytes]


class Run(NamedTuple):
    """Sorted entries, and the keys for which they count."""

    ranges: list
    pack: str
    index_offset: int
    index_bytes: int
    index_hash: bytes
    entry_count: int
    tombstone_count: int
    plain_bytes: int
    full_bytes: int
    merged: int
    phase: int
    metadata: bytes


class Section(NamedTuple):
    """A named table: runs, the oldest first."""

    name: str
    runs: list


class Manifest(NamedTuple):
    """What a checkpoint is made of."""

    job_id: str
    checkpoint: int
    token: int
    nonce: bytes
    created_ms: int
    full_bytes: int
    written_bytes: int
    sections: list
    metadata: bytes


class Fence(NamedTuple):
    """That there has been an owner."""

    token: int
    holder: str
    host: str
    nonce: bytes
    created_ms: int


class Accepted(NamedTuple):
    """What an owner goes on from; None: nothing."""

    token: int
    nonce: bytes
    accepted: Optional[int]
    first: int
    savepoint: Optional[str]


class JobRecord(NamedTuple):
    """A job's name."""

    job_id: str
    name: str
    created_ms: int


def _range(reader: mp.Reader) -> Range:
    if reader.array_size() != 2:
        raise Malformed("a range has two ends")
    first, after = reader.binary(), reader.optional(mp.binary)
    if after is not None and after <= first:
        raise Malformed("a range holds no key")
    return Range(first, after)


def _ranges(reader: mp.Reader) -> list:
    ranges = reader.array(_range)
    if not ranges:
        raise Malformed("a run speaks for no key")
    for before, behind in zip(ranges, ranges[1:]):
        if before.after is None or before.after > behind.first:
            raise Malformed("ranges are not ascending and apart")
    return ranges


_RUN = {
    "ranges": _ranges,
    "pack": mp.text,
    "index_offset": mp.uint(64),
    "index_bytes": mp.uint(32),
    "index_hash": mp.binary_of(32),
    "entry_count": mp.uint(64),
    "tombstone_count": mp.uint(64),
    "plain_bytes": mp.uint(64),
    "full_bytes": mp.uint(64),
    "merged": mp.uint(32),
    "phase": mp.uint(8),
    "metadata": mp.binary,
}


def _run(reader: mp.Reader) -> Run:
    return Run(**reader.fields(_RUN))


_SECTION = {"name": mp.text, "runs": mp.array_of(_run)}


def _section(reader: mp.Reader) -> Section:
    section = Section(**reader.fields(_SECTION))
    if not 1 <= len(section.name.encode()) <= _SECTION_NAME_BYTES_MAX:
        raise Malformed("a section's name has 1 to 1,024 bytes")
    return section


def _sections(reader: mp.Reader) -> list:
    sections = reader.array(_section)
    if len({section.name for section in sections}) != len(sections):
        raise Malformed("two sections have one name")
    return sections


_MANIFEST = {
    "job_id": mp.text,
    "checkpoint": mp.uint(64),
    "token": mp.uint(64),
    "nonce": mp.binary_of(16),
    "created_ms": mp.uint(64),
    "full_bytes": mp.uint(64),
    "written_bytes": mp.uint(64),
    "sections": _sections,
    "metadata": mp.binary,
}

_FENCE = {
    "token": mp.uint(64),
    "holder": mp.text,
    "host": mp.text,
    "nonce": mp.binary_of(16),
    "created_ms": mp.uint(64),
}

_ACCEPTED = {
    "token": mp.uint(64),
    "nonce": mp.binary_of(16),
    "accepted": mp.optional(mp.uint(64)),
    "first": mp.uint(64),
    "savepoint": mp.optional(mp.text),
}

_JOB = {"job_id": mp.text, "name": mp.text, "created_ms": mp.uint(64)}


def read_manifest(path: str) -> Manifest:
    return Manifest(**_read(path, b"SLMF", _MANIFEST_BYTES_MAX, _MANIFEST))


def read_fence(path: str) -> Fence:
    return Fence(**_read(path, b"SLFN", _RECORD_BYTES_MAX, _FENCE))


def read_accepted(path: str) -> Accepted:
    return Accepted(**_read(path, b"SLAC", _RECORD_BYTES_MAX, _ACCEPTED))


def read_job(path: str) -> JobRecord:
    return JobRecord(**_read(path, b"SLJB", _RECORD_BYTES_MAX, _JOB))


def _read(path: str, magic: bytes, bytes_max: int, fields: dict) -> dict[str, Any]:
    try:
        return _parse(_read_file(path, bytes_max), magic, fields, path)
    except Malformed as error:
        raise FormatError(path, str(error)) from None


def _read_file(path: str, bytes_max: int) -> bytes:
    limit = bytes_max + _HEADER_BYTES + _HASH_BYTES
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise Malformed("is no file")
    if found.st_size > limit:
        raise Malformed(f"has {found.st_size} bytes, more than {limit}")
    with open(path, "rb") as file:
        return file.read(found.st_size)


def _parse(data: bytes, magic: bytes, fields: dict, path: str) -> dict[str, Any]:
    if len(data) < _HEADER_BYTES + _HASH_BYTES:
        raise Malformed(f"has only {len(data)} bytes")
    if data[:4] != magic:
        raise Malformed(f"does not begin with {magic.decode()}")
    version = int.from_bytes(data[4:6], "little")
    if version > VERSION:
        raise NewerVersion(path, version, VERSION)
    body, expected = data[:-_HASH_BYTES], data[-_HASH_BYTES:]
    if hash_of(body) != expected:
        raise Malformed("its hash does not fit its bytes")
    size = int.from_bytes(data[8:16], "little")
    if version != VERSION or data[6:8] != b"\0\0" or size != len(body) - _HEADER_BYTES:
        raise Malformed("its header does not fit it")
    reader = mp.Reader(body[_HEADER_BYTES:])
    found = reader.fields(fields)
    if not reader.done():
        raise Malformed("something follows its fields")
    return found
