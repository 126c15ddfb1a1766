"""Arrays in, arrays out: the arithmetic of the models, without Flax."""
