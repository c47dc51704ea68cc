"""What others read of the models: JSON Schemas, an example of each event, and an AsyncAPI document.

`python -m schemas.generate` writes them to schemas/generated/; the same models give the same bytes.
"""

from __future__ import annotations

from schemas.generate.documents import documents

__all__ = ["documents"]
