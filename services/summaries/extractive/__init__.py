"""A summariser without a model: it keeps the clauses that say most per token, in their order, with who said them.

Nothing in it knows a language. Clauses come from punctuation and white space (services/summaries/text.py), the worth of
a word from how common it is in a multilingual vocabulary and in the text itself (terms.py). Cue lists
(services/summaries/cues.yaml) only add: promises, corrections, rules.
"""

from services.summaries.extractive.summariser import MODEL, PROMPT_VERSION, Extractive

__all__ = ["MODEL", "PROMPT_VERSION", "Extractive"]
