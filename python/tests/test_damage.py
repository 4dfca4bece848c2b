"""Bytes that are not what they were, and bytes that were never honest."""

import os
import random
import tracemalloc
import unittest

import msgpack
import zstandard

from strandline_snapshot import FormatError, Snapshot, checkpoints, jobs
from strandline_snapshot._messagepack import Reader
from strandline_snapshot.errors import Malformed

from . import writer
from .test_reading import ALL, InFolder, seed_of
from .writer import JOB, NONCE, blake3, framed, leb128

FLIPS = 200


class Damage(InFolder):
    """Each flip of a bit and each truncation is found, and the file is named."""

    def setUp(self):
        super().setUp()
        old = [(b"key %04d" % key, b"value %d" % key) for key in range(3000)]
        new = [(b"key %04d" % key, None if key % 2 else b"new") for key in range(0, 3000, 7)]
        self.pack = self.root.pack()
        runs = [self.pack.run(old, (0, 1, 2, 3)), self.pack.run(new, (1,), filtered=True)]
        self.path = self.root.publish(1, {"s": runs}, [self.pack])
        self.runs = runs
        self.whole = self.read(self.path)
        self.pack_path = os.path.join(self.root.job, "shared", self.pack.name)

    def open_and_verify(self):
        with Snapshot.open(self.path) as snapshot:
            return snapshot.verify()

    def everything(self):
        return checkpoints(self.root.folder)

    def each_damage(self, path, begin, end, rng):
        """Yields with the file damaged, `begin` and `end` the part that is; mends it after."""
        with open(path, "rb") as file:
            whole = file.read()
        end = len(whole) if end is None else end
        for _ in range(FLIPS):
            at, bit = rng.randrange(begin, end), rng.randrange(8)
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            yield f"bit {bit} of byte {at}", self.write(path, damaged)
        for _ in range(FLIPS // 4):
            size = rng.randrange(begin, end)
            yield f"cut at {size}", self.write(path, whole[:size])
        self.write(path, whole)

    def write(self, path, data):
        with open(path, "wb") as file:
            file.write(data)

    def test_manifest(self):
        path = os.path.join(self.path, "_metadata")
        for what, _ in self.each_damage(path, 0, None, seed_of("damaged manifests")):
            with self.assertRaises(FormatError, msg=what) as caught:
                self.open_and_verify()
            self.assertEqual(caught.exception.file, path)
            self.assertIn(path, self.everything()[0].problem)

    def test_owners(self):
        rng = seed_of("damaged owners")
        path = os.path.join(self.root.job, f"accepted/{1:020}")
        for what, _ in self.each_damage(path, 0, None, rng):
            with self.assertRaises(FormatError, msg=what) as caught:
                self.everything()
            self.assertEqual(caught.exception.file, path)
        path = os.path.join(self.root.job, "_job")
        for what, _ in self.each_damage(path, 0, None, rng):
            (job,) = jobs(self.root.folder)
            self.assertEqual(job.name, None, what)
            self.assertIn(path, job.problem)
            self.assertEqual(len(self.everything()), 1)

    def test_what_verifying_says_of_owners(self):
        rng = seed_of("damaged fences")
        # The pack is damaged elsewhere, and slow to read.
        self.path = self.root.publish(2, {}, [])
        for name in (f"accepted/{1:020}", f"fence/{1:020}"):
            path = os.path.join(self.root.job, name)
            for what, _ in self.each_damage(path, 0, None, rng):
                (problem,) = self.open_and_verify()
                self.assertEqual(problem.file, path, what)
        self.root.fence(1, nonce=b"y" * 16)
        (problem,) = self.open_and_verify()
        self.assertIn("is not that of the owner that wrote chk-2", problem.what)
        os.remove(problem.file)
        (problem,) = self.open_and_verify()
        self.assertEqual(problem.what, "is missing")

    def test_pack(self):
        self.check_pack(0, None, seed_of("damaged packs"))

    def test_indexes(self):
        rng = seed_of("damaged indexes")
        for run in self.runs:
            begin = run["index_offset"]
            self.check_pack(begin, begin + run["index_bytes"], rng)

    def check_pack(self, begin, end, rng):
        for what, _ in self.each_damage(self.pack_path, begin, end, rng):
            found = self.open_and_verify()
            self.assertTrue(found, what)
            self.assertEqual({problem.file for problem in found}, {self.pack_path}, what)
            try:
                # What is left of the bytes may be a filter's, which a walk leaves aside.
                self.assertEqual(self.read(self.path), self.whole, what)
            except FormatError as error:
                self.assertEqual(error.file, self.pack_path, what)
        self.assertEqual(self.open_and_verify(), [])

    def test_a_missing_pack(self):
        os.remove(self.pack_path)
        self.assertEqual({problem.file for problem in self.open_and_verify()}, {self.pack_path})


class Hostile(InFolder):
    """Files whose hashes are right and whose contents are not what the format asks for."""

    def setUp(self):
        super().setUp()
        self.number = 0

    def refused_run(self, text, change=None, entries=((b"a", b"1"), (b"b", b"2")), **how):
        """A run that `change` has spoilt is refused by reading and by verifying."""
        self.number += 1
        pack = self.root.pack(self.number)
        run = pack.run(list(entries), **how)
        if change is not None:
            change(pack, run)
        path = self.root.publish(self.number, {"s": [run]}, [pack])
        self.refused(path, text)

    def refused(self, path, text):
        with self.assertRaisesRegex(FormatError, text):
            self.read(path)
        with Snapshot.open(path) as snapshot:
            self.assertRegex("\n".join(map(str, snapshot.verify())), text)

    def refused_chunk(self, text, content, stored=None, **changed):
        """A run of one chunk of these bytes."""

        def change(pack, run):
            data = b"\x00" + content if stored is None else stored
            offset = pack.add(data)
            ref = {"offset": offset, "stored_bytes": len(data), "plain": len(content), "entries": 2}
            ref = {**ref, "tombstones": 0, **changed}
            sizes = tuple(ref[name] for name in ("offset", "stored_bytes", "plain", "entries", "tombstones"))
            index = writer.index_bytes([pack.name], [(0, *sizes, blake3(content).digest(), b"a")])
            self.put_index(pack, run, index)

        self.refused_run(text, change)

    def put_index(self, pack, run, index):
        run.update(index_offset=pack.add(index), index_bytes=len(index))
        run.update(index_hash=blake3(index).digest())

    def refused_index(self, text, make):
        self.refused_run(text, lambda pack, run: self.put_index(pack, run, make(pack)))

    def test_chunks(self):
        good = writer.plain_chunk([(b"a", b"1"), (b"b", b"2")])
        end = good[-8:]
        a, b = b"\x00\x01a\x021", b"\x00\x01b\x022"
        for text, plain in (
            ("too short", b""),
            ("so many restarts", b"\x00\x00\x00\x00"),
            ("so many restarts", a + b + b"\xff\xff\xff\xff"),
            ("so many restarts", end),
            ("do not ascend", a + b + a + end),
            ("do not ascend", a + b"\x01\x00\x021" + end),
            ("does not share", a + b"\x00\x02ab\x021" + end),
            ("does not share", a + a + end),
            ("does not share", a + b"\x02\x00\x021" + end),
            ("restarts are not where", b"\x01\x00\x021" + b + end),
            ("restarts are not where", a + b + b"\x00" * 4 + b"\x04\x00\x00\x00\x02\x00\x00\x00"),
            ("restarts are not where", a + b + b"\x01" + end[1:]),
            ("within a number", a + b[:-2] + end),
            ("are left", a + b"\x00\x01b\x072" + end),
            ("are left", a + b"\x00\xff\xff\xff\x07b\x022" + end),
            ("key is too large", a + b"\x00\xff\xff\xff\xff\x0fb\x022" + end),
            ("value is too large", a + b"\x00\x01b\xff\xff\xff\xff\x0f2" + end),
            ("more than 64 bits", a + b"\xff" * 9 + b"\x02" + b + end),
            ("more than 64 bits", a + b"\xff" * 11 + b + end),
        ):
            with self.subTest(text=text, plain=plain):
                self.refused_chunk(text, plain)

    def test_chunks_that_the_index_does_not_fit(self):
        good = writer.plain_chunk([(b"a", b"1"), (b"b", b"2")])
        many = "not as many entries"
        for text, changed in (
            (many, {"entries": 3}),
            (many, {"tombstones": 1}),
            ("plain bytes, not", {"plain": len(good) + 1}),
            ("within limits", {"plain": 2**31}),
            ("within limits", {"stored_bytes": 0}),
            ("numbers of entries", {"entries": 0}),
            ("numbers of entries", {"tombstones": 3}),
            ("are named, and it has", {"offset": 2**63}),
            ("are named, and it has", {"offset": 0}),
            ("are named, and it has", {"stored_bytes": 2**32 - 1}),
        ):
            with self.subTest(text=text, changed=changed):
                self.refused_chunk(text, good, **changed)
        first = writer.plain_chunk([(b"0", b"1"), (b"b", b"2")])
        self.refused_chunk("first key is not that of the index", first)

    def test_chunks_that_overlap(self):
        cut = lambda entries: [entries[:1], entries[1:]]  # noqa: E731
        entries = [(b"a", b""), (b"c", b""), (b"d", b"")]
        overlapping = lambda entries: [[(b"a", b""), (b"c", b"")], entries[1:]]  # noqa: E731
        self.refused_run("not below the chunk after it", entries=entries, cut=overlapping)
        back = lambda entries: reversed(cut(entries))  # noqa: E731
        self.refused_run("first keys do not ascend", entries=entries, cut=back)

    def test_compressed_chunks(self):
        plain = writer.plain_chunk([(b"a", b"1" * 5000), (b"b", b"2" * 5000)])
        lz4, zstd = writer.compressed(plain, 1), writer.compressed(plain, 2)
        sizeless = writer.compressed(plain, 3)
        for text, stored, changed in (
            ("compression 3 is not known", b"\x03" + plain, {}),
            ("LZ4 block is broken", lz4[:-1], {}),
            ("LZ4 block is broken|plain bytes, not", lz4, {"plain": len(plain) - 1}),
            ("LZ4 block is broken|plain bytes, not", lz4, {"plain": len(plain) + 1}),
            ("can't be", lz4, {"plain": 2**30}),
            ("can't be", b"\x01", {}),
            ("no Zstandard frame", b"\x02", {}),
            ("no Zstandard frame", b"\x02" + b"\x50\x2a\x4d\x18\x01\x00\x00\x00x", {}),
            ("Zstandard frame is broken", zstd[:-1], {}),
            ("Zstandard frame is broken", zstd + b"x", {}),
            ("Zstandard frame is broken", zstd + zstd[1:], {}),
            ("its frame promises", zstd, {"plain": len(plain) - 1}),
            ("frame is broken|plain bytes, not", sizeless, {"plain": len(plain) - 1}),
            ("plain bytes, not", sizeless, {"plain": len(plain) + 1}),
            ("can't be", b"\x02" + zstd[1:20], {"plain": 2**30}),
        ):
            with self.subTest(text=text, stored=stored[:20], changed=changed):
                self.refused_chunk(text, plain, stored, **changed)

    def test_indexes(self):
        name = b"00000000000000000001-1-only.pack"
        packs = b"\x01\x01" + leb128(len(name)) + name
        for text, index in (
            ("are left", b""),
            ("has version 0", b"\x00" + packs[1:]),
            ("ends within a number", b"\x01"),
            ("ends within a number", b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
            ("no name of a pack", b"\x01\x01\x07../pack"),
            ("no name of a pack", b"\x01\x01\x0a../x/.pack"),
            ("not UTF-8", b"\x01\x01\x01\xff"),
            ("are left", packs + b"\x01\x00"),
            ("not in its list", packs + b"\x01\x01"),
            ("filter 2 is not known", packs + b"\x00\x02"),
            ("something follows", packs + b"\x00\x00\x00"),
            ("not in its list", packs + b"\x00\x01\x01"),
        ):
            with self.subTest(text=text, index=index):
                self.refused_index(text, lambda pack, index=index: index)

    def test_filters(self):
        def spoil(data):
            def change(pack, run):
                place = (0, pack.add(data), len(data), blake3(data).digest())
                self.put_index(pack, run, writer.index_bytes([pack.name], [], place))
                run.update(entry_count=0, plain_bytes=0, full_bytes=run["index_bytes"] + len(data))

            return change

        for data in (b"\x00\x00\x00\x00", b"\x01\x00\x00\x00" + b"x" * 63, b"\xff" * 68, b"x"):
            self.number += 1
            pack = self.root.pack(self.number)
            run = pack.run([(b"a", b"1")])
            spoil(data)(pack, run)
            path = self.root.publish(self.number, {"s": [run]}, [pack])
            with Snapshot.open(path) as snapshot:
                (problem,) = snapshot.verify()
            self.assertRegex(problem.what, "filter at .*(number of blocks|are left)")

    def test_a_filter_that_denies_a_key(self):
        pack = self.root.pack()
        entries = [(b"%d" % key, b"") for key in range(10, 99)]
        run = pack.run(entries, filtered=True)
        at = pack.data.index(writer.filter_bytes([key for key, _ in entries]))
        empty = b"\x02\x00\x00\x00" + b"\x00" * 128
        pack.data[at : at + len(empty)] = empty
        index = bytes(pack.data[run["index_offset"] :])
        self.put_index(pack, run, index[:-32] + blake3(empty).digest())
        path = self.root.publish(1, {"s": [run]}, [pack])
        with Snapshot.open(path) as snapshot:
            (problem,) = snapshot.verify()
        self.assertIn("denies 89 keys", problem.what)

    def test_sums_of_a_run(self):
        for field in ("entry_count", "tombstone_count", "plain_bytes", "full_bytes"):
            self.number += 1
            pack = self.root.pack(self.number)
            run = pack.run([(b"a", b"1")])
            run[field] += 1
            path = self.root.publish(self.number, {"s": [run]}, [pack])
            with Snapshot.open(path) as snapshot:
                (problem,) = snapshot.verify()
            self.assertIn("entries, tombstones, plain bytes, full bytes", problem.what)

    def test_too_many_runs_speak(self):
        pack = self.root.pack()
        runs = [pack.run([(b"a", b"%d" % number)]) for number in range(1025)]
        path = self.root.publish(1, {"s": runs}, [pack])
        self.refused(path, "more than 1,024 runs speak for one key")
        path = self.root.publish(2, {"s": runs[1:]}, [pack])
        self.assertEqual(self.read(path), [(b"a", b"1024")])

    def test_manifests(self):
        run = self.root.pack().run([(b"a", b"1")])
        good = writer.manifest(1, 1, {"s": [run]})
        ranges = [([[b"b", b"a"]]), ([[b"a", b"a"]]), ([[b"a", None], [b"b", None]])]
        ranges += [[[b"c", b"d"], [b"a", b"b"]], [[b"a", b"c"], [b"b", b"d"]], [[b"a"]], [b"a"], []]
        spoilt = [{**run, "ranges": each} for each in ranges]
        spoilt += [{**run, "pack": each} for each in ("../a.pack", "/a.pack", "a", "", ".pack", 1)]
        spoilt += [{**run, "index_bytes": 2**32}, {**run, "index_bytes": -1}]
        spoilt += [{**run, "index_hash": b"x"}, {**run, "phase": 256}, {**run, "merged": 1.5}]
        spoilt += [{name: run[name] for name in run if name != left} for left in run]
        cases = [{**good, "sections": [{"name": "s", "runs": [each]}]} for each in spoilt]
        cases += [{name: good[name] for name in good if name != left} for left in good]
        section = good["sections"][0]
        cases += [{**good, "sections": each} for each in ([section] * 2, {}, None, [[]], b"")]
        cases += [{**good, "sections": [{"name": each, "runs": []}]} for each in ("", "x" * 1025)]
        cases += [{**good, "checkpoint": 2}, {**good, "job_id": "f" * 32}, {**good, "nonce": "x" * 16}]
        packed = msgpack.packb(good)
        cases += [packed + b"\xc0", packed[:-1], b"", b"\xdf\xff\xff\xff\xff", b"\x90", b"\xc1"]
        cases += [b"\x82" + 2 * msgpack.packb({"checkpoint": 1})[1:], b"\x81\xa1\xff\xc0"]
        for case in cases:
            path = os.path.dirname(self.root.put("chk-1/_metadata", framed(b"SLMF", case)))
            with self.assertRaises(FormatError, msg=str(case)) as caught:
                Snapshot.open(path)
            self.assertTrue(caught.exception.file.endswith("_metadata"))

    def test_owners(self):
        good = {"token": 1, "nonce": NONCE, "accepted": None, "first": 1, "savepoint": None}
        for changed in ({"token": 2}, {"nonce": b"y"}, {"accepted": -1}, {"first": None}):
            path = self.root.put(f"accepted/{1:020}", framed(b"SLAC", {**good, **changed}))
            with self.assertRaises(FormatError) as caught:
                checkpoints(self.root.job)
            self.assertEqual(caught.exception.file, path)

    def test_records_are_no_larger_than_their_limits(self):
        self.root.put(f"accepted/{1:020}", b"x" * ((64 << 10) + 49))
        with self.assertRaisesRegex(FormatError, "more than 65584"):
            checkpoints(self.root.job)
        path = os.path.join(self.root.job, "chk-1", "_metadata")
        os.makedirs(os.path.dirname(path))
        with open(path, "wb") as file:
            file.truncate((256 << 20) + 49)
        with self.assertRaisesRegex(FormatError, "more than 268435504"):
            Snapshot.open(os.path.dirname(path))

    def test_a_folder_in_place_of_a_file(self):
        os.makedirs(os.path.join(self.root.job, "chk-1", "_metadata"))
        with self.assertRaisesRegex(FormatError, "is no file"):
            Snapshot.open(os.path.join(self.root.job, "chk-1"))

    def test_deep_and_wide_values_cost_nothing(self):
        deep = b"\x91" * 1_000_000 + b"\xc0"
        wide = b"\xdc\xff\xff" + b"\x80" * 0xFFFF
        good = msgpack.packb(writer.manifest(1, 1, {}))
        for value in (deep, wide):
            payload = b"\x8a" + good[1:] + b"\xa1x" + value
            self.assertEqual(good[0], 0x89)
            path = self.root.put("chk-1/_metadata", framed(b"SLMF", payload))
            tracemalloc.start()
            with Snapshot.open(os.path.dirname(path)) as snapshot:
                self.assertEqual(snapshot.sections(), [])
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            self.assertLess(most, 5 * len(payload) + (1 << 20))

    def test_a_bomb_takes_only_what_its_index_says(self):
        bomb = b"\x02" + zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 28))
        plain = writer.plain_chunk([(b"a", b"1"), (b"b", b"2")])
        tracemalloc.start()
        self.refused_chunk("frame is broken|plain bytes, not", plain, bomb)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        self.assertLess(most, 16 << 20)

    def test_random_chunks_and_records(self):
        rng = seed_of("random bytes")
        good = bytearray(writer.plain_chunk([(b"a%d" % key, b"1") for key in range(40)]))
        for _ in range(300):
            plain = bytearray(good)
            for _ in range(rng.randrange(1, 4)):
                plain[rng.randrange(len(plain))] = rng.randrange(256)
            self.only_format_errors(self.chunk_of(bytes(plain)))
            fields = rng.randbytes(rng.randrange(100))
            path = self.root.put("chk-1/_metadata", framed(b"SLMF", fields))
            with self.assertRaises(FormatError):
                Snapshot.open(os.path.dirname(path))

    def chunk_of(self, plain):
        self.number += 1
        pack = self.root.pack(self.number)
        run = pack.run([(b"a", b"1")])
        ref = (0, pack.add(b"\x00" + plain), len(plain) + 1, len(plain), 40, 0)
        index = writer.index_bytes([pack.name], [(*ref, blake3(plain).digest(), b"a0")])
        self.put_index(pack, run, index)
        return self.root.publish(self.number, {"s": [run]}, [pack])

    def only_format_errors(self, path):
        try:
            self.read(path)
        except FormatError:
            pass
        with Snapshot.open(path) as snapshot:
            snapshot.verify()


class MessagePack(unittest.TestCase):
    """The small reader agrees with somebody else's."""

    def test_whatever_there_is_is_skipped(self):
        rng = seed_of("skipping")
        for _ in range(2000):
            packed = msgpack.packb(random_value(rng, 3))
            reader = Reader(packed + b"\x07")
            reader.skip()
            self.assertEqual(reader.uint(64), 7)
            self.assertTrue(reader.done())
            cut = packed[: rng.randrange(len(packed))]
            with self.assertRaises(Malformed):
                Reader(cut).skip()

    def test_numbers_of_every_width(self):
        for value in (0, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63, 2**64 - 1):
            self.assertEqual(Reader(msgpack.packb(value)).uint(64), value)
        for value in (-1, -128, -129, -(2**63)):
            with self.assertRaises(Malformed):
                Reader(msgpack.packb(value)).uint(64)
        # As signed numbers, which other writers may choose.
        self.assertEqual(Reader(b"\xd0\x05").uint(8), 5)
        self.assertEqual(Reader(b"\xd3" + b"\0" * 7 + b"\x05").uint(8), 5)


def random_value(rng, depth):
    kind = rng.randrange(12 if depth else 9)
    size = rng.choice((0, 1, 15, 16, 31, 32, 255, 256, 300, 65535, 65536)) if depth == 3 else rng.randrange(40)
    simple = (None, True, False, rng.uniform(-1, 1), rng.randrange(2**64), -rng.randrange(2**63))
    if kind < 6:
        return simple[kind]
    if kind == 6:
        return "x" * size
    if kind == 7:
        return bytes(size)
    if kind == 8:
        return msgpack.ExtType(5, bytes(rng.choice((0, 1, 2, 4, 8, 16, 17, 300))))
    items = [random_value(rng, depth - 1) for _ in range(size % 20)]
    if kind == 9:
        return items
    if kind == 10:
        return [None] * size
    return dict(enumerate(items))


if __name__ == "__main__":
    unittest.main()
