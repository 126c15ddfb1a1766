"""Text generation: greedy search, beam search and sampling."""
