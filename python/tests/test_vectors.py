"""``docs/vectors/snapshot.json``, written by the library in Rust: the tests' writer makes the same
bytes, and the reader reads them."""

import json
import os
import struct
import tempfile
import unittest

import msgpack
from blake3 import blake3

from strandline_snapshot import Snapshot, checkpoints, jobs
from strandline_snapshot import _bytes, _pack

from . import writer

VECTORS = os.path.join(
    os.path.dirname(__file__), os.pardir, os.pardir, "docs", "vectors", "snapshot.json"
)


def unhex(value):
    """Bytes in hex, or one byte so many times; None for a tombstone."""
    if value is None:
        return None
    if isinstance(value, list):
        return bytes.fromhex(value[0]) * value[1]
    return bytes.fromhex(value)


@unittest.skipUnless(os.path.exists(VECTORS), "the package is not in its repository")
class Vectors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(VECTORS, encoding="utf-8") as file:
            cls.groups = json.load(file)

    def each(self, group):
        self.assertTrue(self.groups[group])
        for vector in self.groups[group]:
            with self.subTest(group=group, vector=str(vector)[:200]):
                yield vector

    def test_varints(self):
        for vector in self.each("varints"):
            value, data = int(vector["value"]), unhex(vector["bytes"])
            self.assertEqual(writer.leb128(value), data)
            self.assertEqual(_bytes.varint(data, 0, len(data)), (value, len(data)))

    def test_mixes(self):
        for vector in self.each("mixes"):
            of, expected = int(vector["of"]), int(vector["is"])
            self.assertEqual((writer.mix(of), _pack.mix(of)), (expected, expected))

    def test_prints(self):
        for vector in self.each("prints"):
            key, expected = unhex(vector["key"]), int(vector["print"])
            self.assertEqual((writer.print_of(key), _pack.key_print(key)), (expected, expected))

    def test_cuts(self):
        drawn = set()
        for vector in self.each("cuts"):
            run, chunk, key = vector["run"], vector["chunk"], unhex(vector["key"])
            cut = "no"
            if writer.cuts(chunk, vector["entry"], key):
                cut = "run" if writer.ends_run(run + chunk, key) else "chunk"
            self.assertEqual(cut, vector["cut"])
            drawn.add(cut)
        self.assertEqual(drawn, {"no", "chunk", "run"})

    def test_chunks(self):
        for vector in self.each("chunks"):
            entries = [(unhex(key), unhex(value)) for key, value in vector["entries"]]
            plain = writer.plain_chunk(entries)
            counted = sum(writer.entry_size(key, value) for key, value in entries)
            self.assertEqual((counted, len(plain)), (vector["counted"], vector["plain_bytes"]))
            self.assertEqual(blake3(plain).hexdigest(), vector["name"])
            if vector["plain"] is not None:
                self.assertEqual(plain.hex(), vector["plain"])
            self.assertEqual(list(_pack.decode_chunk(plain)), entries)

    def test_stored_chunks(self):
        for vector in self.each("stored chunks"):
            plain = unhex(vector["plain"])
            self.assertEqual(_pack.decompress(unhex(vector["stored"]), len(plain)), plain)
            self.assertEqual(blake3(plain).hexdigest(), vector["name"])

    def test_filters(self):
        for vector in self.each("filters"):
            keys, data = [unhex(key) for key in vector["keys"]], unhex(vector["bytes"])
            self.assertEqual(writer.filter_bytes(keys).hex(), data.hex())
            self.assertTrue(all(map(_pack.Filter(data).may_hold, keys)))

    def test_runs(self):
        for vector in self.each("runs"):
            keys = [struct.pack(">Q", writer.mix(n)) for n in range(vector["entries"])]
            entries = [(key, key[7:] * vector["value_bytes"]) for key in sorted(keys)]
            pack = writer.Pack(vector["pack"])
            run = pack.run(entries)
            self.assertEqual(pack.data[run["index_offset"] :].hex(), vector["index"])
            self.assertEqual(blake3(pack.data).hexdigest(), vector["pack_hash"])
            self.assertEqual(len(pack.data), vector["pack_bytes"])
            for field in ("index_offset", "plain_bytes", "full_bytes"):
                self.assertEqual(run[field], vector[field])

    def test_objects(self):
        with tempfile.TemporaryDirectory() as root:
            for vector in self.groups["objects"]:
                if "path" in vector:
                    self.put(os.path.join(root, vector["path"]), unhex(vector["bytes"]))
            (job,) = jobs(root)
            self.assertEqual((job.name, job.problem), ("vectors", None))
            self.assertEqual([checkpoint.number for checkpoint in checkpoints(root)], [1, 2])
            for vector in self.groups["objects"]:
                if "checkpoint" in vector:
                    path = os.path.join(job.path, f"chk-{vector['checkpoint']}")
                    self.check_checkpoint(path, vector)

    def check_checkpoint(self, path, vector):
        with Snapshot.open(path) as snapshot:
            self.assertEqual(snapshot.verify(), [])
            found = [[key.hex(), value.hex()] for key, value in snapshot.entries(vector["section"])]
            self.assertEqual(found, vector["entries"])

    def put(self, path, data):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)

    def test_records(self):
        """Frames around the fields that the format's page names, and no others."""
        kinds = {}
        for vector in self.groups["objects"]:
            data = unhex(vector.get("bytes", ""))
            if data and data[:4] != b"SLPK":
                fields = msgpack.unpackb(data[16:-32])
                self.assertEqual(writer.framed(data[:4], fields), data)
                kinds[data[:4]] = fields
        self.assertEqual({kind: set(fields) for kind, fields in kinds.items()}, FIELDS)
        section = kinds[b"SLMF"]["sections"][0]
        self.assertEqual(set(section), {"name", "runs"})
        self.assertEqual({frozenset(run) for run in section["runs"]}, {RUN_FIELDS})


FIELDS = {
    b"SLMF": set(writer.manifest(1, 1, {})),
    b"SLFN": {"token", "holder", "host", "nonce", "created_ms"},
    b"SLAC": {"token", "nonce", "accepted", "first", "savepoint"},
    b"SLLS": set("token sequence holder host renewed_ms lease_ms highest released locked".split()),
    b"SLPN": {"checkpoint", "holder", "expires_ms"},
    b"SLJB": {"job_id", "name", "created_ms"},
}

RUN_FIELDS = frozenset(writer.Pack("x.pack").run([(b"a", b"1")]))
