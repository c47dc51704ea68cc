"""Counting tokens offline."""

from services.tokens.counter import ENCODING, TokenCounter, default_counter

__all__ = ["ENCODING", "TokenCounter", "default_counter"]
