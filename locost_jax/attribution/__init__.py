"""Where a summary comes from: attention, and its page."""
