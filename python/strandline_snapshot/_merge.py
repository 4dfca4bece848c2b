"""Several runs as one table.

A run is opened when the walk comes to a range that it speaks for, and closed when it has left it.
So the number of open runs is that of the runs that speak for the key at hand, however many runs a
section has: at most 12 where a table grows by changes, and one for each subtask where many have
written keys that lie among each other.
"""

from __future__ import annotations

import heapq
from typing import Iterator, NamedTuple, Optional

from ._pack import Entry, OpenRun, PackFolder
from .errors import FormatError

# Against manifests that would have a reader open more and more.
SPEAKING_MAX = 1024


class _Piece(NamedTuple):
    """A range of a run: where it begins, and which run it is of."""

    first: bytes
    age: int
    after: Optional[bytes]


def merged(packs: PackFolder, manifest: str, runs: list, first: bytes, after: Optional[bytes]):
    """Entries of a section with keys in the range, in order; what is deleted is left out."""
    for key, _, value in _newest(_Walk(packs, manifest, runs, first, after)):
        if value is not None:
            yield key, value


def _newest(walk: Iterator[tuple]) -> Iterator[tuple]:
    """Of the entries of one key, the first: the walk yields the newest first."""
    last = None
    for entry in walk:
        if entry[0] != last:
            last = entry[0]
            yield entry


class _Walk:
    """All entries of all runs that speak, by key; of one key the newest first."""

    def __init__(self, packs, manifest, runs, first, after):
        self._packs = packs
        self._manifest = manifest
        self._runs = runs
        # Ascending; a piece is taken from the end.
        self._waiting = sorted(_pieces(runs, first, after), reverse=True)
        # (key, minus age, value, the entries behind, age)
        self._open: list[tuple] = []

    def __iter__(self) -> Iterator[tuple]:
        while self._open or self._waiting:
            self._open_pieces()
            if not self._open:
                continue
            key, rank, value, entries = self._open[0]
            yield key, rank, value
            behind = next(entries, None)
            if behind is None:
                heapq.heappop(self._open)
            else:
                heapq.heapreplace(self._open, (behind[0], rank, behind[1], entries))

    def _open_pieces(self) -> None:
        """Opens whatever may hold a key up to the smallest that is at hand."""
        while self._waiting and (not self._open or self._waiting[-1].first <= self._open[0][0]):
            piece = self._waiting.pop()
            entries = self._entries(piece)
            entry = next(entries, None)
            if entry is not None:
                heapq.heappush(self._open, (entry[0], -piece.age, entry[1], entries))
            if len(self._open) > SPEAKING_MAX:
                what = f"more than {SPEAKING_MAX:,} runs speak for one key"
                raise FormatError(self._manifest, what)

    def _entries(self, piece: _Piece) -> Iterator[Entry]:
        run = OpenRun(self._packs, self._runs[piece.age])
        yield from run.entries(piece.first, piece.after)


def _pieces(runs: list, first: bytes, after: Optional[bytes]) -> Iterator[_Piece]:
    for age, run in enumerate(runs):
        for own in run.ranges:
            ends = [end for end in (own.after, after) if end is not None]
            begin, end = max(own.first, first), min(ends, default=None)
            if end is None or begin < end:
                yield _Piece(begin, age, end)
