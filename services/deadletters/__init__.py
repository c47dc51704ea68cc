"""Dead letters: what they say about themselves, which are selected, and how often one may be replayed."""
