"""The garbage collector of a worker: not in the way of short-lived events.

An event and what is made of it are some dozens of small objects that reference counts free. With Python's own
threshold (700 allocations) a batch of 200 turns sets off hundreds of collections that find nothing, and now and then
one that walks all modules and tables of the process.
"""

from __future__ import annotations

import gc

YOUNG = 20_000
"""Allocations, less what was freed, between two collections of the youngest generation: more than a batch keeps."""


def settle() -> None:
    """What is there now stays for good: no collection looks at it again. To be called once a process has started."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG)
