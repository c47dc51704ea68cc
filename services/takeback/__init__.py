"""Taking back: what a chat regenerates, rewinds, edits or deletes disappears from everything derived from it (W7), and
a fork starts from what was there at its point (W8)."""
