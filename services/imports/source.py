"""A file that is read once from start to end, and how far."""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import BinaryIO


class Source:
    """A file open for reading. A byte order mark is not part of its content."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO = path.open("rb", buffering=1 << 20)
        self.size = os.fstat(self._file.fileno()).st_size
        self.rewind()

    def rewind(self) -> None:
        """Back to the start."""
        self._file.seek(0)
        if self._file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
            self._file.seek(0)

    @property
    def position(self) -> int:
        """Bytes read."""
        return self._file.tell()

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; b"" at the end."""
        return self._file.read(size)

    def readline(self, limit: int) -> bytes:
        """A line with its end, or `limit` bytes of it."""
        return self._file.readline(limit)

    def close(self) -> None:
        """Release the file."""
        self._file.close()
