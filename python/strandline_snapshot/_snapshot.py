"""One checkpoint or savepoint, opened."""

from __future__ import annotations

import os
from typing import Iterator, Optional

from . import _verify
from ._jobs import (
    MANIFEST,
    Checkpoint,
    checkpoint_manifest,
    checkpoint_number,
    is_job,
    newest,
    owner_problems,
)
from ._merge import merged
from ._pack import PackFolder, check_pack_name
from ._records import Manifest, read_manifest
from .errors import FormatError, Malformed, NotFound


class Snapshot:
    """A checkpoint or a savepoint whose manifest has been read and verified.

    Several walks over its entries may be open at once; it is not for several threads.
    """

    def __init__(self, folder: str, manifest: Manifest, pack_folder: str):
        self.path = folder
        self.manifest = manifest
        self._manifest_path = os.path.join(folder, MANIFEST)
        self._packs = PackFolder(pack_folder, self._manifest_path)
        self._runs = {section.name: section.runs for section in manifest.sections}

    @classmethod
    def open(cls, path) -> Snapshot:
        """Opens the folder of a checkpoint or a savepoint, or the newest checkpoint that counts
        of a job's folder."""
        folder = os.path.abspath(os.fspath(path))
        if not os.path.exists(os.path.join(folder, MANIFEST)):
            folder = _newest_folder(folder)
        try:
            return cls._open_folder(folder)
        except FileNotFoundError:
            raise NotFound(f"{folder} was deleted just now") from None

    @classmethod
    def _open_folder(cls, folder: str) -> Snapshot:
        if _is_checkpoint(folder):
            shared = os.path.join(os.path.dirname(folder), "shared")
            snapshot = cls(folder, checkpoint_manifest(folder), shared)
        else:
            manifest = read_manifest(os.path.join(folder, MANIFEST))
            snapshot = cls(folder, manifest, folder)
        snapshot._check_names()
        return snapshot

    def close(self) -> None:
        """Closes the files; they are opened again when they are needed."""
        self._packs.close()

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def sections(self) -> list:
        """The names of its sections, as the manifest lists them."""
        return list(self._runs)

    def entries(
        self, section: str, first: bytes = b"", after: Optional[bytes] = None
    ) -> Iterator[tuple]:
        """Pairs of key and value, by key: those from ``first`` on and before ``after``.

        One chunk of each run that speaks for the key at hand is in memory, and its index.
        """
        if section not in self._runs:
            raise NotFound(f"{self.path} has no section `{section}`")
        return merged(self._packs, self._manifest_path, self._runs[section], first, after)

    def verify(self) -> list:
        """Reads all that the manifest names, and the records of the owner that wrote it; what is
        wrong, with the names of files."""
        found = list(_verify.problems(self._packs, self._manifest_path, self.manifest))
        if _is_checkpoint(self.path):
            owner = owner_problems(self.path, self.manifest)
            found.extend(_verify.Problem(error.file, error.what) for error in owner)
        return found

    def _check_names(self) -> None:
        try:
            for runs in self._runs.values():
                for run in runs:
                    check_pack_name(run.pack)
        except Malformed as error:
            raise FormatError(self._manifest_path, str(error)) from None


def _newest_folder(path: str) -> str:
    if not is_job(path):
        raise NotFound(f"{path} is no checkpoint, no savepoint and no job")
    found: Checkpoint = newest(path)
    return found.path


def _is_checkpoint(folder: str) -> bool:
    """Whether the packs are the job's: a checkpoint lies in the folder of its job, a savepoint
    anywhere."""
    numbered = checkpoint_number(os.path.basename(folder)) is not None
    return numbered and is_job(os.path.dirname(folder))
