"""Text to batches: corpora, tokenised records, their order."""
