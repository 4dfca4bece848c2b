"""Reads all that a manifest names, and says what is wrong with it."""

from __future__ import annotations

from typing import Iterator, NamedTuple

from ._merge import SPEAKING_MAX
from ._pack import OpenRun, PackFolder
from ._records import Manifest, Run
from .errors import FormatError


class Problem(NamedTuple):
    """A file that is not what the format asks for, and why."""

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


def problems(packs: PackFolder, path: str, manifest: Manifest) -> Iterator[Problem]:
    runs = [run for section in manifest.sections for run in section.runs]
    full_bytes = sum(run.full_bytes for run in runs)
    if full_bytes != manifest.full_bytes:
        what = f"names {manifest.full_bytes} bytes, and its runs have {full_bytes}"
        yield Problem(path, what)
    for section in manifest.sections:
        if speaking_most(section.runs) > SPEAKING_MAX:
            what = f"section `{section.name}`: more than {SPEAKING_MAX:,} runs speak for one key"
            yield Problem(path, what)
    for run in runs:
        yield from _run(packs, path, run)


def speaking_most(runs: list) -> int:
    """How many runs speak for one key at most."""
    ends = []
    for run in runs:
        for first, after in run.ranges:
            ends.append((first, 1))
            if after is not None:
                ends.append((after, -1))
    most = now = 0
    # At one key, what ends comes before what begins.
    for _, step in sorted(ends):
        now += step
        most = max(most, now)
    return most


def _run(packs: PackFolder, path: str, run: Run) -> Iterator[Problem]:
    try:
        opened = OpenRun(packs, run)
    except FormatError as error:
        yield Problem(error.file, error.what)
        return
    found = _sums(opened)
    expected = (run.entry_count, run.tombstone_count, run.plain_bytes, run.full_bytes)
    if found != expected:
        what = f"run with index at {run.index_offset} of {run.pack}: has {found}, not {expected}"
        yield Problem(path, f"{what} (entries, tombstones, plain bytes, full bytes)")
    yield from _contents(opened)


def _sums(opened: OpenRun) -> tuple:
    chunks, kept = opened.index
    full_bytes = opened.run.index_bytes + (kept.size if kept else 0)
    return (
        sum(chunk.entries for chunk in chunks),
        sum(chunk.tombstones for chunk in chunks),
        sum(chunk.plain_bytes for chunk in chunks),
        sum(chunk.stored_bytes for chunk in chunks) + full_bytes,
    )


def _contents(opened: OpenRun) -> Iterator[Problem]:
    """Each chunk, and each key in the filter; what is wrong with one doesn't hide another."""
    kept = None
    try:
        kept = opened.filter()
    except FormatError as error:
        yield Problem(error.file, error.what)
    missing = 0
    for place in range(len(opened.index.chunks)):
        try:
            for key, _ in opened.chunk(place):
                missing += kept is not None and not kept.may_hold(key)
        except FormatError as error:
            yield Problem(error.file, error.what)
    if missing:
        place = opened.index.filter
        what = f"filter at {place.offset}: denies {missing} keys that its run holds"
        yield Problem(opened.packs.path(place.pack), what)
