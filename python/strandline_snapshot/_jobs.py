"""Jobs under a root, and which of their checkpoints count."""

from __future__ import annotations

import os
import re
from typing import Iterator, NamedTuple, Optional

from ._bytes import U64_MAX
from ._records import Accepted, Manifest, read_accepted, read_fence, read_job, read_manifest
from .errors import FormatError, NotFound

MANIFEST = "_metadata"

_JOB = re.compile(r"[0-9a-f]{32}", re.ASCII)
_CHECKPOINT = re.compile(r"chk-([1-9][0-9]{0,19})", re.ASCII)
_TOKEN = re.compile(r"[0-9]{20}", re.ASCII)


class Job(NamedTuple):
    """A job's folder. The name is None where there is no record of it, or where that can't be
    read: ``problem`` says why. Nothing else depends on it."""

    id: str
    name: Optional[str]
    path: str
    problem: Optional[str]


class Checkpoint(NamedTuple):
    """A checkpoint that counts. The manifest is None where it can't be read: ``problem``
    says why."""

    job_id: str
    number: int
    path: str
    manifest: Optional[Manifest]
    problem: Optional[str]


def is_job(path: str) -> bool:
    """Whether the path has the name of a job's folder."""
    return _JOB.fullmatch(os.path.basename(os.path.abspath(path))) is not None


def checkpoint_number(name: str) -> Optional[int]:
    """The number in a folder's name."""
    found = _CHECKPOINT.fullmatch(name)
    number = int(found[1]) if found else 0
    return number if 0 < number <= U64_MAX else None


def jobs(root: str) -> list:
    """The jobs under a root, by id. A root that is a job's folder gives that one."""
    path = os.path.abspath(os.fspath(root))
    if is_job(path):
        return [_job(path)]
    names = (name for name in _names(path) if _JOB.fullmatch(name))
    return [_job(os.path.join(path, name)) for name in names]


def _job(path: str) -> Job:
    id_ = os.path.basename(path)
    record_path = os.path.join(path, "_job")
    name, problem = None, None
    try:
        record = read_job(record_path)
        if record.job_id != id_:
            raise FormatError(record_path, f"is of job {record.job_id}")
        name = record.name
    except FileNotFoundError:
        pass
    except FormatError as error:
        problem = str(error)
    return Job(id_, name, path, problem)


def checkpoints(root_or_job: str) -> list:
    """The checkpoints that count, of one job or of all under a root, by job and number."""
    path = os.path.abspath(os.fspath(root_or_job))
    folders = [path] if is_job(path) else [job.path for job in jobs(path)]
    return [checkpoint for folder in folders for checkpoint in _of_job(folder)]


def newest(job: str) -> Checkpoint:
    """The newest checkpoint of a job that counts."""
    found = checkpoints(job)
    if not found:
        raise NotFound(f"{job} has no checkpoint that counts")
    return found[-1]


def _of_job(folder: str) -> Iterator[Checkpoint]:
    owners = _owners(folder)
    numbers = sorted(filter(None, map(checkpoint_number, _names(folder))))
    for number in numbers:
        path = os.path.join(folder, f"chk-{number}")
        manifest, problem = None, None
        try:
            manifest = checkpoint_manifest(path)
        except FileNotFoundError:
            continue  # Not published yet, or deleted just now.
        except FormatError as error:
            problem = str(error)
        token = manifest.token if manifest else presumed_token(owners, number)
        if counts(owners, number, token):
            yield Checkpoint(os.path.basename(folder), number, path, manifest, problem)


def checkpoint_manifest(path: str) -> Manifest:
    """The manifest in the folder of a checkpoint: of that job and number."""
    file = os.path.join(path, MANIFEST)
    manifest = read_manifest(file)
    job = os.path.basename(os.path.dirname(path))
    expected = (job, checkpoint_number(os.path.basename(path)))
    if (manifest.job_id, manifest.checkpoint) != expected:
        raise FormatError(file, f"is of checkpoint {manifest.checkpoint} of {manifest.job_id}")
    return manifest


def counts(owners: list, number: int, token: int) -> bool:
    """Whether all later owners have accepted it, whatever they went on from."""
    later = (owner for owner in owners if owner.token > token)
    return all(owner.accepted is not None and number <= owner.accepted for owner in later)


def presumed_token(owners: list, number: int) -> int:
    """Who must have written a manifest that can't be read; 0: before anybody."""
    return max((owner.token for owner in owners if owner.first <= number), default=0)


def _owners(folder: str) -> list:
    """What each owner went on from, the newest first, back to the last one that went on from
    nothing: what is older says nothing that counts, and is not read. Those that left only a fence
    have written nothing."""
    owners = []
    for token, path in sorted(_tokens(os.path.join(folder, "accepted")), reverse=True):
        owner: Accepted = read_accepted(path)
        if owner.token != token:
            raise FormatError(path, f"is of token {owner.token}")
        owners.append(owner)
        if owner.accepted is None:
            break
    return owners


def owner_problems(checkpoint: str, manifest: Manifest) -> Iterator[FormatError]:
    """What is wrong with the records of the owner that wrote a checkpoint."""
    job = os.path.dirname(checkpoint)
    for kind, read in (("fence", read_fence), ("accepted", read_accepted)):
        path = os.path.join(job, kind, f"{manifest.token:020}")
        try:
            record = read(path)
            if (record.token, record.nonce) != (manifest.token, manifest.nonce):
                what = f"is not that of the owner that wrote {os.path.basename(checkpoint)}"
                raise FormatError(path, what)
        except FileNotFoundError:
            yield FormatError(path, "is missing")
        except FormatError as error:
            yield error


def _tokens(folder: str) -> Iterator[tuple]:
    if not os.path.isdir(folder):
        return
    for name in _names(folder):
        if _TOKEN.fullmatch(name) and int(name) <= U64_MAX:
            yield int(name), os.path.join(folder, name)


def _names(folder: str) -> list:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"there is no folder {folder}") from None
