"""``python -m strandline_snapshot``: looks at checkpoints and savepoints.

Exit codes: 0 all is well, 1 something is damaged or can't be read, 2 bad arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import datetime, timezone
from typing import BinaryIO, Callable

from . import Manifest, NotFound, Run, Snapshot, SnapshotError, checkpoints, jobs


def main(arguments=None) -> int:
    options = _parser().parse_args(arguments)
    out = sys.stdout.buffer
    try:
        code = options.run(options, out)
        out.flush()
        return code
    except NotFound as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Whoever read the output has seen enough; the interpreter must not flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (SnapshotError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="strandline-snapshot", description="Looks at checkpoints and savepoints."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = "folder of a checkpoint or a savepoint, or of a job: its newest checkpoint that counts"
    _command(commands, "list", _list, "the checkpoints that count", "a root, or a job's folder")
    _command(commands, "show", _show, "what a manifest says", one)
    _command(commands, "verify", _verify, "read everything, and say what is wrong", one)
    entries = _command(commands, "entries", _entries, "section, key and value of each entry", one)
    entries.add_argument("--section", help="only this one")
    return parser


def _command(commands, name: str, run: Callable, what: str, path: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=what, description=what)
    command.add_argument("path", metavar="PATH", help=path)
    command.add_argument("--json", action="store_true", help="for programs")
    command.set_defaults(run=run)
    return command


def _list(options, out: BinaryIO) -> int:
    names = {job.id: job.name for job in jobs(options.path)}
    found = checkpoints(options.path)
    if options.json:
        _print_json(out, [_listed(checkpoint, names[checkpoint.job_id]) for checkpoint in found])
        return 0
    for checkpoint in found:
        job = names[checkpoint.job_id]
        job = checkpoint.job_id if job is None else f"{checkpoint.job_id} ({job})"
        manifest = checkpoint.manifest
        what = checkpoint.problem
        if manifest:
            what = f"{_time(manifest.created_ms)}  {manifest.full_bytes:,} bytes"
        _print(out, f"{job}  chk-{checkpoint.number}  {what}")
    return 0


def _listed(checkpoint, job_name) -> dict:
    manifest = checkpoint.manifest
    return {
        "job_id": checkpoint.job_id,
        "job_name": job_name,
        "checkpoint": checkpoint.number,
        "path": checkpoint.path,
        "created_ms": manifest and manifest.created_ms,
        "full_bytes": manifest and manifest.full_bytes,
        "written_bytes": manifest and manifest.written_bytes,
        "problem": checkpoint.problem,
    }


def _show(options, out: BinaryIO) -> int:
    with Snapshot.open(options.path) as snapshot:
        manifest = snapshot.manifest
        if options.json:
            _print_json(out, _as_json(manifest))
            return 0
        _print(out, f"checkpoint {manifest.checkpoint} of job {manifest.job_id}")
        _print(out, f"created    {_time(manifest.created_ms)}, by the owner with token {manifest.token}")
        _print(out, f"bytes      {manifest.full_bytes:,} in all, {manifest.written_bytes:,} written for it")
        for section in manifest.sections:
            _print(out, f"section    {section.name}")
            for run in section.runs:
                _print(out, f"  {_run_line(run)}")
    return 0


def _run_line(run: Run) -> str:
    kind = f"changes of {run.merged} checkpoints" if run.merged else "base"
    ranges = ", ".join(f"{first.hex() or '0'} .. {_end(after)}" for first, after in run.ranges)
    sizes = f"{run.entry_count:,} entries, {run.tombstone_count:,} tombstones, {run.full_bytes:,} bytes"
    return f"{kind}: {sizes}; {ranges}; {run.pack}"


def _end(after) -> str:
    return "" if after is None else after.hex()


def _as_json(value):
    """Named tuples as objects, bytes in hex."""
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "_asdict"):
        return {name: _as_json(field) for name, field in value._asdict().items()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    return value


def _verify(options, out: BinaryIO) -> int:
    with Snapshot.open(options.path) as snapshot:
        found = snapshot.verify()
        if options.json:
            _print_json(out, {"path": snapshot.path, "problems": _as_json(found)})
        else:
            for problem in found:
                _print(out, str(problem))
            _print(out, f"{snapshot.path}: {_verdict(snapshot.manifest, len(found))}")
    return 1 if found else 0


def _verdict(manifest: Manifest, problems: int) -> str:
    if problems:
        return f"{problems} problem{'s' if problems > 1 else ''}"
    return f"whole: {manifest.full_bytes:,} bytes in {len(manifest.sections)} sections"


def _entries(options, out: BinaryIO) -> int:
    form = _entry_json if options.json else _entry_line
    with Snapshot.open(options.path) as snapshot:
        sections = snapshot.sections() if options.section is None else [options.section]
        for section in sections:
            for key, value in snapshot.entries(section):
                out.write(form(section, key, value).encode() + b"\n")
    return 0


def _entry_line(section: str, key: bytes, value: bytes) -> str:
    return f"{section}\t{key.hex()}\t{value.hex()}"


def _entry_json(section: str, key: bytes, value: bytes) -> str:
    return json.dumps({"section": section, "key": key.hex(), "value": value.hex()})


def _time(unix_ms: int) -> str:
    try:
        time = datetime.fromtimestamp(unix_ms / 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return f"{unix_ms} ms"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC")


def _print(out: BinaryIO, line: str) -> None:
    out.write(line.encode("utf-8", "backslashreplace") + b"\n")


def _print_json(out: BinaryIO, value) -> None:
    _print(out, json.dumps(value, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
