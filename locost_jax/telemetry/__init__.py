"""The numbers that a run writes while it trains."""
