"""Training: the step, the loop, losses, optimisers, warm starts."""
