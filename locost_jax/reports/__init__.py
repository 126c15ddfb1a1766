"""The page that shows the results of runs."""
