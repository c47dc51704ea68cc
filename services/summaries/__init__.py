"""Conversation summaries: chunks, tiers, the long-term memory (rules S1 to S9)."""
