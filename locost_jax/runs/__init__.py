"""A whole run put together from the other packages."""
