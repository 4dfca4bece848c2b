"""Reads the checkpoints and savepoints of Strandline.

>>> from strandline_snapshot import Snapshot
>>> with Snapshot.open("checkpoints/<job id>") as snapshot:         # doctest: +SKIP
...     for section in snapshot.sections():
...         for key, value in snapshot.entries(section):
...             print(section, key.hex(), value.hex())

Every byte is hashed before it is believed, and every length is compared with what is there before
memory is taken for it. What does not fit the format is a ``FormatError`` that names the file.
"""

from ._jobs import Checkpoint, Job, checkpoints, jobs
from ._records import Manifest, Range, Run, Section
from ._snapshot import Snapshot
from ._verify import Problem
from .errors import FormatError, NewerVersion, NotFound, SnapshotError, Subsumed

__all__ = [
    "Checkpoint",
    "FormatError",
    "Job",
    "Manifest",
    "NewerVersion",
    "NotFound",
    "Problem",
    "Range",
    "Run",
    "Section",
    "Snapshot",
    "SnapshotError",
    "Subsumed",
    "checkpoints",
    "jobs",
]
