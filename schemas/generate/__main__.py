"""Rewrites schemas/generated/ (files that no model asks for are removed) and the table in docs/events.md."""

from __future__ import annotations

from pathlib import Path

from schemas.generate.documents import documents
from schemas.generate.tables import inserted

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "schemas" / "generated"
PAGE = ROOT / "docs" / "events.md"


def main() -> None:
    """Write what differs, remove what is left over, and say so."""
    folder, wanted = FOLDER, documents()
    for path in sorted(folder.rglob("*.json")):
        if path.relative_to(folder).as_posix() not in wanted:
            path.unlink()
            print(f"removed {path.relative_to(folder)}")
    for name, text in wanted.items():
        path = folder / name
        if path.exists() and path.read_text("utf-8") == text:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", newline="\n")
        print(f"wrote {name}")
    page = PAGE.read_text("utf-8")
    if inserted(page) != page:
        PAGE.write_text(inserted(page), "utf-8", newline="\n")
        print(f"wrote the table in {PAGE.name}")


if __name__ == "__main__":
    main()
