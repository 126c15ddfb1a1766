"""The table of readers of the files that authors of corpora published.

READERS maps each task to a function (directory) -> iterator of (split, row). A
row is a dict of id, document and summary, and optionally query, sections,
documents and references. `papers.prepare` writes the rows as JSON Lines. The
facts about the corpora are in locost_jax/data/corpora.py.

A row whose text is missing is None, and `papers.prepare` counts it. A missing
file or folder of the whole corpus is an InputError.
"""

import functools

from papers.corpora import documents
from papers.corpora import stories
from papers.corpora import transcripts

_with = functools.partial
READERS = {
    'arxiv': _with(documents.read_papers, name='arxiv'),
    'pubmed': _with(documents.read_papers, name='pubmed'),
    'govreport_authors': documents.read_gov_report,
    'summscreen': transcripts.read_summscreen,
    'booksum_chapter': _with(stories.read_booksum, level='chapter'),
    'booksum_book': _with(stories.read_booksum, level='book'),
    'narrativeqa': stories.read_narrative_qa,
    'narrativeqa_plot': _with(stories.read_narrative_qa, with_plot=True),
    'qmsum': transcripts.read_qmsum,
}
