"""Files of models that come with the package; no code."""
