"""What can go wrong, and how a caller tells the cases apart."""


class SnapshotError(Exception):
    """Anything that this package raises by itself. Failures of the disk stay ``OSError``."""


class NotFound(SnapshotError):
    """There is no such job, checkpoint or section."""


class Subsumed(SnapshotError):
    """The checkpoint was deleted by its owner while it was being read; nothing is damaged."""


class FormatError(SnapshotError):
    """A file's bytes are not what the format asks for. ``file`` names it, ``what`` says why."""

    def __init__(self, file: str, what: str):
        super().__init__(f"{file}: {what}")
        self.file = str(file)
        self.what = what


class NewerVersion(FormatError):
    """A file needs a newer version of the format than this package reads."""

    def __init__(self, file: str, needs: int, reads: int):
        super().__init__(file, f"needs version {needs} of the format; this package reads {reads}")
        self.needs = needs


class Malformed(ValueError):
    """Bytes that don't fit, before it is known which file they are of. Never leaves the package."""


class TooNew(Malformed):
    """The same for a version."""

    def __init__(self, needs: int):
        super().__init__(f"needs version {needs}")
        self.needs = needs
