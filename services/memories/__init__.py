"""Saved memories: what is kept of a user, who may change it, and what goes into a context (rules M1 to M11)."""
