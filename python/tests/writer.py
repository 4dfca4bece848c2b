"""A writer of the format, written from its page alone. It shares no code with the reader."""

from __future__ import annotations

import os
import struct

import lz4.block
import msgpack
import zstandard
from blake3 import blake3

JOB = "0123456789abcdef0123456789abcdef"
NONCE = bytes(range(16))
MASK = 2**64 - 1

CHUNK_MIN = 16_384
CHUNK_MAX = 262_144
SPAN = 49_152
RUN_MIN = 16_777_216
RUN_MAX = 33_554_432


def leb128(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value % 128 + 128)
        value //= 128
    out.append(value)
    return bytes(out)


def mix(z):
    z ^= z >> 33
    z = (z * 0xFF51AFD7ED558CCD) & MASK
    z ^= z >> 33
    z = (z * 0xC4CEB9FE1A85EC53) & MASK
    return z ^ (z >> 33)


def draw(key):
    """The number by which cuts are chosen."""
    return mix(int.from_bytes(key[:8].ljust(8, b"\0"), "big"))


def entry_size(key, value):
    """As if no bytes were shared."""
    value_bytes = 0 if value is None else len(value)
    value_number = 0 if value is None else len(value) + 1
    return len(leb128(len(key))) + len(key) + len(leb128(value_number)) + value_bytes


def cuts(chunk, entry, key):
    """Whether a chunk of this size ends before this entry."""
    if chunk < CHUNK_MIN:
        return False
    if chunk + entry > CHUNK_MAX:
        return True
    return draw(key) < min(MASK, entry * (MASK // SPAN))


def ends_run(run, key):
    """Whether, at a cut before this key, a run with chunks of this size ends."""
    return run >= RUN_MAX or (run >= RUN_MIN and mix(draw(key)) < MASK // 256)


def chunks_of(entries):
    """Cuts a run."""
    chunk, size = [], 0
    for key, value in entries:
        entry = entry_size(key, value)
        if chunk and cuts(size, entry, key):
            yield chunk
            chunk, size = [], 0
        chunk.append((key, value))
        size += entry
    if chunk:
        yield chunk


def common(a, b):
    return len(os.path.commonprefix([a, b]))


def plain_chunk(entries):
    out, restarts, before = bytearray(), [], b""
    for number, (key, value) in enumerate(entries):
        shared = 0
        if number % 16 == 0:
            restarts.append(len(out))
        else:
            shared = common(before, key)
        out += leb128(shared) + leb128(len(key) - shared) + key[shared:]
        out += leb128(0) if value is None else leb128(len(value) + 1) + value
        before = key
    out += struct.pack(f"<{len(restarts)}I", *restarts)
    return bytes(out + struct.pack("<I", len(restarts)))


def compressed(plain, kind):
    if kind == 1:
        return b"\x01" + lz4.block.compress(plain, store_size=False)
    if kind == 2:
        return b"\x02" + zstandard.ZstdCompressor().compress(plain)
    if kind == 3:  # The same format, without the size in the frame.
        return b"\x02" + zstandard.ZstdCompressor(write_content_size=False).compress(plain)
    return b"\x00" + plain


def print_of(key):
    h = (len(key) * 0x9E3779B97F4A7C15) & MASK
    for at in range(0, len(key), 8):
        (word,) = struct.unpack("<Q", key[at : at + 8].ljust(8, b"\0"))
        h = mix(h ^ word)
    return h


def bits_of(key, blocks):
    """The block, and the six bits in it."""
    h = print_of(key)
    g = mix((h + 0x9E3779B97F4A7C15) & MASK)
    return (h * blocks) >> 64, [(g // 2 ** (9 * i)) % 512 for i in range(6)]


def filter_bytes(keys):
    blocks = -(-10 * len(keys) // 512)
    table = [bytearray(64) for _ in range(blocks)]
    for key in keys:
        block, bits = bits_of(key, blocks)
        for bit in bits:
            table[block][bit // 8] |= 1 << (bit % 8)
    return struct.pack("<I", blocks) + b"".join(map(bytes, table))


def index_bytes(packs, chunks, filter_place=None):
    out = b"\x01" + leb128(len(packs))
    for name in packs:
        out += leb128(len(name)) + name.encode()
    out += leb128(len(chunks))
    for pack, offset, stored, plain, entries, tombstones, digest, first in chunks:
        out += leb128(pack) + struct.pack("<QIIII", offset, stored, plain, entries, tombstones)
        out += digest + leb128(len(first)) + first
    if filter_place is None:
        return out + b"\x00"
    pack, offset, size, digest = filter_place
    return out + b"\x01" + leb128(pack) + struct.pack("<QI", offset, size) + digest


def framed(magic, fields, version=1):
    payload = fields if isinstance(fields, bytes) else msgpack.packb(fields)
    out = magic + struct.pack("<HHQ", version, 0, len(payload)) + payload
    return out + blake3(out).digest()


class Pack:
    """A pack in the making. Chunks that are known already, by name, are not written again."""

    def __init__(self, name, known=None):
        self.name = name
        self.data = bytearray(b"SLPK\x01\x00")
        self.known = {} if known is None else known

    def add(self, data):
        self.data += data
        return len(self.data) - len(data)

    def run(self, entries, kinds=(0,), ranges=((b"", None),), merged=0, filtered=None, cut=chunks_of):
        """Writes a run and returns its fields for the manifest."""
        packs, refs = [], []
        for number, chunk in enumerate(cut(entries)):
            plain = plain_chunk(chunk)
            digest = blake3(plain).digest()
            if digest not in self.known:
                stored = compressed(plain, kinds[number % len(kinds)])
                self.known[digest] = (self.name, self.add(stored), len(stored))
            pack, offset, stored_bytes = self.known[digest]
            if pack not in packs:
                packs.append(pack)
            tombstones = sum(value is None for _, value in chunk)
            sizes = (offset, stored_bytes, len(plain), len(chunk), tombstones)
            refs.append((packs.index(pack), *sizes, digest, chunk[0][0]))
        place, filter_size = None, 0
        if filtered if filtered is not None else len(refs) > 1:
            data = filter_bytes([key for key, _ in entries])
            if self.name not in packs:
                packs.append(self.name)
            place = (packs.index(self.name), self.add(data), len(data), blake3(data).digest())
            filter_size = len(data)
        index = index_bytes(packs, refs, place)
        offset = self.add(index)
        return {
            "ranges": [list(ends) for ends in ranges],
            "pack": self.name,
            "index_offset": offset,
            "index_bytes": len(index),
            "index_hash": blake3(index).digest(),
            "entry_count": len(entries),
            "tombstone_count": sum(value is None for _, value in entries),
            "plain_bytes": sum(ref[3] for ref in refs),
            "full_bytes": sum(ref[2] for ref in refs) + len(index) + filter_size,
            "merged": merged,
            "phase": 7,
            "metadata": b"schema",
        }


class Root:
    """A storage with one job."""

    def __init__(self, folder):
        self.folder = folder
        self.job = os.path.join(folder, JOB)
        record = {"job_id": JOB, "name": "a job", "created_ms": 1}
        self.put("_job", framed(b"SLJB", record))

    def put(self, name, data):
        path = os.path.join(self.job, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def fence(self, token, **changed):
        fields = {"token": token, "holder": "me", "host": "here", "nonce": NONCE, "created_ms": 5}
        return self.put(f"fence/{token:020}", framed(b"SLFN", {**fields, **changed}))

    def owner(self, token, accepted, first, **changed):
        self.fence(token)
        fields = {"token": token, "nonce": NONCE, "accepted": accepted, "first": first}
        fields = {**fields, "savepoint": None, "a field to come": [{"x": [1.5, -1]}], **changed}
        return self.put(f"accepted/{token:020}", framed(b"SLAC", fields))

    def pack(self, checkpoint=1, token=1, label="only", known=None):
        return Pack(f"{checkpoint:020}-{token}-{label}.pack", known)

    def publish(self, number, sections, packs, token=1, **changed):
        """Writes packs and the manifest; the folder of the checkpoint."""
        for pack in packs:
            self.put(f"shared/{pack.name}", pack.data)
        fields = manifest(number, token, sections)
        return os.path.dirname(
            self.put(f"chk-{number}/_metadata", framed(b"SLMF", {**fields, **changed}))
        )


def manifest(number, token, sections):
    runs = [run for runs in sections.values() for run in runs]
    return {
        "job_id": JOB,
        "checkpoint": number,
        "token": token,
        "nonce": NONCE,
        "created_ms": 1_700_000_000_000,
        "full_bytes": sum(run["full_bytes"] for run in runs),
        "written_bytes": 10,
        "sections": [{"name": name, "runs": runs} for name, runs in sections.items()],
        "metadata": b"\x80",
    }
