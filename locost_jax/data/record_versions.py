"""Versions of the modules that determine the tokenised records.

The key of every cache contains the versions, so a cache is reused until one of
them is raised. Raise a module's version by hand in the commit that changes its
output; tests of golden records fail if the output changes without it. Other
edits to these modules keep all caches valid.
"""

VERSIONS = dict(
    gsg=1,
    pages=1,
    plain_text=2,  # `corpus_rows.plain`; the oldest caches lack it
    preprocessors=1,
    sources=1,  # for the built-in corpus
    text=2,  # et al. (see Fig. 3) is one sentence
)

RECORDS = ('text', 'gsg', 'pages', 'preprocessors')  # for every corpus
