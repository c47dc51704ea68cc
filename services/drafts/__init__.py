"""Drafts of saved memories, which a user looks over before they are saved (rule M7)."""
