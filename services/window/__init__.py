"""The live window: what a chat keeps verbatim, and what leaves it (rules W1 to W6)."""
