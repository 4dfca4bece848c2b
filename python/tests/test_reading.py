"""What is written is read: merging, ranges, compressions, which checkpoints count."""

import os
import random
import shutil
import subprocess
import tempfile
import tracemalloc
import unittest

from strandline_snapshot import NewerVersion, NotFound, Snapshot, Subsumed, checkpoints, jobs

from . import writer
from .writer import JOB, Pack, Root, framed


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.root = Root(os.path.join(self.folder, "root"))
        self.root.owner(1, None, 1)

    def read(self, path, section="s", **ends):
        with Snapshot.open(path) as snapshot:
            return list(snapshot.entries(section, **ends))

    def publish(self, runs_of, number=1, kinds=(0,), cut=writer.chunks_of):
        """A checkpoint with one section; `runs_of` are (entries, ranges)."""
        pack = self.root.pack(number)
        runs = [pack.run(entries, kinds, ranges, cut=cut) for entries, ranges in runs_of]
        return self.root.publish(number, {"s": runs}, [pack])


def seed_of(test):
    seed = int(os.environ.get("STRANDLINE_SEED", random.SystemRandom().randrange(2**32)))
    print(f"{test}: STRANDLINE_SEED={seed}", flush=True)
    return random.Random(seed)


ALL = ((b"", None),)


class Merging(InFolder):
    def test_newer_runs_win_and_tombstones_hide(self):
        old = [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]
        new = [(b"a", None), (b"c", b"2"), (b"d", None)]
        path = self.publish([(old, ALL), (new, ALL)])
        self.assertEqual(self.read(path), [(b"b", b"1"), (b"c", b"2")])

    def test_a_put_above_a_tombstone_is_there_again(self):
        runs = [[(b"a", b"1")], [(b"a", None)], [(b"a", b"")]]
        path = self.publish([(run, ALL) for run in runs])
        self.assertEqual(self.read(path), [(b"a", b"")])

    def test_what_a_run_holds_outside_of_its_ranges_does_not_count(self):
        old = [(b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"d", b"1")]
        new = [(b"a", b"2"), (b"b", b"2"), (b"c", None), (b"d", b"2")]
        ranges = ((b"b", b"c"), (b"d", b"e"))
        path = self.publish([(old, ((b"a", b"d"),)), (new, ranges)])
        self.assertEqual(self.read(path), [(b"a", b"1"), (b"b", b"2"), (b"c", b"1"), (b"d", b"2")])

    def test_ends_of_a_walk(self):
        path = self.publish([([(bytes([key]), b"v") for key in range(100)], ALL)])
        keys = [key[0] for key, _ in self.read(path, first=b"\x0a", after=b"\x0d")]
        self.assertEqual(keys, [10, 11, 12])
        self.assertEqual(self.read(path, first=b"\x0a", after=b"\x0a"), [])
        self.assertEqual(self.read(path, first=b"z"), [])

    def test_sections_without_entries(self):
        pack = self.root.pack()
        path = self.root.publish(1, {"none": [], "s": [pack.run([])]}, [pack])
        with Snapshot.open(path) as snapshot:
            self.assertEqual(snapshot.sections(), ["none", "s"])
            self.assertEqual(list(snapshot.entries("none")), [])
            self.assertEqual(list(snapshot.entries("s")), [])
            self.assertEqual(snapshot.verify(), [])
            with self.assertRaises(NotFound):
                snapshot.entries("other")

    def test_more_runs_than_may_speak_are_opened_where_they_do_not_overlap(self):
        runs = [([(bytes([key]), b"v")], ((bytes([key]), bytes([key + 1])),)) for key in range(50)]
        path = self.publish(runs)
        self.assertEqual([key[0] for key, _ in self.read(path)], list(range(50)))

    def test_chunks_of_earlier_checkpoints_are_reused(self):
        entries = [(b"%06d" % key, b"v" * 40) for key in range(5000)]
        first = self.root.pack(1)
        self.root.publish(1, {"s": [first.run(entries)]}, [first])
        entries[4000] = (b"004000", b"changed")
        second = self.root.pack(2, known=dict(first.known))
        path = self.root.publish(2, {"s": [second.run(entries)]}, [second])
        self.assertLess(len(second.data), len(first.data) / 2)
        self.assertEqual(self.read(path), entries)

    def test_large_values_and_long_keys(self):
        entries = [(b"a" * 20_000, b"x"), (b"a" * 20_000 + b"b", b"y" * 3_000_000), (b"c", b"")]
        for kind in range(4):
            path = self.publish([(entries, ALL)], number=kind + 1, kinds=(kind,))
            self.assertEqual(self.read(path), entries)
            with Snapshot.open(path) as snapshot:
                self.assertEqual(snapshot.verify(), [])

    def test_a_walk_has_one_chunk_of_each_run_in_memory(self):
        def run(value):
            return [(b"%08d" % key, value * 100) for key in range(40_000)]

        path = self.publish([(run(b"1"), ALL), (run(b"2"), ALL)], kinds=(2,))
        with Snapshot.open(path) as snapshot:
            tracemalloc.start()
            count = sum(1 for _ in snapshot.entries("s"))
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            self.assertEqual(count, 40_000)
            plain_bytes = snapshot.manifest.sections[0].runs[0].plain_bytes
        self.assertGreater(plain_bytes, 4_000_000)
        self.assertLess(most, 4 * writer.CHUNK_MAX)

    def test_against_a_dict(self):
        rng = seed_of("against a dict")
        for number in range(1, 60):
            runs, model = random_runs(rng)
            path = self.publish(runs, number, (0, 1, 2, 3), cut=random_cuts(rng))
            with Snapshot.open(path) as snapshot:
                self.assertEqual(snapshot.verify(), [])
                self.assertEqual(list(snapshot.entries("s")), sorted(model.items()))
                first, after = sorted((random_key(rng), random_key(rng)))
                expected = [e for e in sorted(model.items()) if first <= e[0] < after]
                self.assertEqual(list(snapshot.entries("s", first, after)), expected)
            self.check_reference(path, model)

    def check_reference(self, path, model):
        """The reference reader in Rust, where it has been built, says the same."""
        program = os.environ.get("STRANDLINE_REFERENCE_READER")
        if program:
            lines = [f"s\t{key.hex()}\t{value.hex()}\n" for key, value in sorted(model.items())]
            ended = subprocess.run([program, path], capture_output=True, text=True, check=False)
            self.assertEqual((ended.stdout, ended.stderr), ("".join(lines), ""))


def random_key(rng):
    return bytes(rng.choice(b"abc") for _ in range(rng.randrange(6)))


def random_runs(rng):
    """Up to twelve runs with ranges, and what they say of each key."""
    runs, model = [], {}
    for _ in range(rng.randrange(1, 13)):
        keys = sorted({random_key(rng) for _ in range(rng.randrange(1, 60))})
        entries = [(key, random_value(rng)) for key in keys]
        ends = sorted({random_key(rng) for _ in range(rng.randrange(1, 7))})
        ranges = list(zip(ends[::2], ends[1::2] + [None]))
        for key, value in entries:
            if any(first <= key and (after is None or key < after) for first, after in ranges):
                model[key] = value
        runs.append((entries, ranges))
    return runs, {key: value for key, value in model.items() if value is not None}


def random_value(rng):
    return None if rng.random() < 0.3 else rng.randbytes(rng.randrange(20))


def random_cuts(rng):
    """A reader needs no rule: chunks may end anywhere."""

    def cut(entries):
        at = 0
        while at < len(entries):
            size = rng.randrange(1, 40)
            yield entries[at : at + size]
            at += size

    return cut


class Places(InFolder):
    def test_a_job_gives_its_newest_checkpoint(self):
        for number in (2, 10, 9):
            self.publish([([(b"n", b"%d" % number)], ALL)], number)
        self.assertEqual(self.read(self.root.job), [(b"n", b"10")])
        self.assertEqual(self.read(os.path.join(self.root.job, "chk-2")), [(b"n", b"2")])

    def test_a_savepoint_is_whole_wherever_it_is(self):
        pack = Pack("any-name.pack")
        fields = writer.manifest(3, 1, {"s": [pack.run([(b"k", b"v")])]})
        for name in ("savepoint-012345-0123456789ab", "chk-3", "mine"):
            folder = os.path.join(self.folder, "elsewhere", name)
            os.makedirs(folder)
            for file, data in ((pack.name, pack.data), ("_metadata", framed(b"SLMF", fields))):
                with open(os.path.join(folder, file), "wb") as out:
                    out.write(data)
            self.assertEqual(self.read(folder), [(b"k", b"v")])

    def test_jobs_and_their_names(self):
        nameless = os.path.join(self.root.folder, "f" * 32)
        os.makedirs(nameless)
        os.makedirs(os.path.join(self.root.folder, "savepoint-012345-0123456789ab"))
        found = [(job.id, job.name) for job in jobs(self.root.folder)]
        self.assertEqual(found, [(JOB, "a job"), ("f" * 32, None)])
        self.assertEqual([job.id for job in jobs(self.root.job)], [JOB])

    def test_places_where_there_is_nothing(self):
        for path in (self.root.folder, self.root.job, os.path.join(self.folder, "none")):
            with self.assertRaises(NotFound):
                Snapshot.open(path)

    def test_a_checkpoint_that_is_deleted_while_it_is_read(self):
        path = self.publish([([(b"k", b"v")], ALL)])
        snapshot = Snapshot.open(path)
        shutil.rmtree(path)
        shutil.rmtree(os.path.join(self.root.job, "shared"))
        with self.assertRaises(Subsumed):
            list(snapshot.entries("s"))


class Counting(InFolder):
    def counted(self):
        return [checkpoint.number for checkpoint in checkpoints(self.root.folder)]

    def publish_of(self, number, token):
        self.root.publish(number, {}, [], token)

    def test_a_later_owner_voids_what_it_has_not_accepted(self):
        self.publish_of(1, 1)
        self.publish_of(2, 1)
        self.root.owner(2, 2, 4)
        self.publish_of(3, 1)
        self.publish_of(4, 2)
        self.assertEqual(self.counted(), [1, 2, 4])

    def test_a_fresh_start_voids_everything_before(self):
        self.publish_of(1, 1)
        self.root.owner(2, None, 2)
        self.assertEqual(self.counted(), [])
        self.publish_of(2, 2)
        self.root.owner(3, 2, 3)
        self.assertEqual(self.counted(), [2])

    def test_what_is_older_than_a_fresh_start_may_be_damaged(self):
        self.root.owner(2, None, 1)
        self.root.put(f"accepted/{1:020}", b"damaged")
        self.publish_of(1, 2)
        self.assertEqual(self.counted(), [1])

    def test_a_fence_alone_changes_nothing(self):
        self.publish_of(1, 1)
        self.root.fence(2)
        self.assertEqual(self.counted(), [1])

    def test_a_manifest_that_cannot_be_read_has_the_token_of_its_time(self):
        self.root.owner(2, 3, 5)
        for number in (3, 4, 5):
            self.root.put(f"chk-{number}/_metadata", b"damaged")
        self.assertEqual(self.counted(), [3, 5])
        self.assertIn("_metadata", checkpoints(self.root.job)[0].problem)

    def test_unfinished_and_unpublished(self):
        self.root.put("chk-7/.tmp-1", b"")
        self.root.put("chk-07/_metadata", b"")
        self.root.put("fence/.tmp-1", b"")
        self.assertEqual(self.counted(), [])

    def test_other_places(self):
        self.publish_of(1, 1)
        shutil.copytree(os.path.join(self.root.job, "chk-1"), os.path.join(self.root.job, "chk-2"))
        self.assertIn("is of checkpoint 1", checkpoints(self.root.job)[1].problem)


class Versions(InFolder):
    def test_a_newer_version_is_named(self):
        pack = self.root.pack()
        run = pack.run([(b"k", b"v")])
        path = self.root.publish(1, {"s": [run]}, [pack])
        file = os.path.join(path, "_metadata")
        fields = writer.manifest(1, 1, {"s": [run]})
        self.put(file, framed(b"SLMF", fields, version=2))
        self.refused(lambda: Snapshot.open(path), "_metadata: needs version 2 of the format")
        self.put(file, framed(b"SLMF", fields))
        shared = os.path.join(self.root.job, "shared", pack.name)
        self.put(shared, b"SLPK\x02\x00" + pack.data[6:])
        self.refused(lambda: self.read(path), f"{pack.name}: needs version 2 of the format")

    def test_a_newer_index_is_named(self):
        pack = self.root.pack()
        index = b"\x02 and something to come"
        run = pack.run([(b"k", b"v")])
        run.update(index_offset=pack.add(index), index_bytes=len(index))
        run.update(index_hash=writer.blake3(index).digest())
        path = self.root.publish(1, {"s": [run]}, [pack])
        self.refused(lambda: self.read(path), "needs version 2 of the format")

    def put(self, path, data):
        with open(path, "wb") as file:
            file.write(data)

    def refused(self, call, text):
        with self.assertRaises(NewerVersion) as caught:
            call()
        self.assertIn(text, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
