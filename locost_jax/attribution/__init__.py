"""Where a summary comes from: attention, copied words, and its page."""
