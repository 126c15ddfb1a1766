"""The table of readers of the files that authors of corpora published.

READERS maps each task to a function (directory) -> iterator of (split, row). A
row is a dict of id, document and summary, and optionally query, sections,
documents and references. `papers.prepare` writes the rows as JSON Lines. The
facts about the corpora are in locost_jax/data/corpora.py.

A row whose text is missing is None, and `papers.prepare` counts it. A missing
file or folder of the whole corpus is an InputError.
"""

import functools

from locost_jax.data import corpora
from papers.corpora import documents
from papers.corpora import news
from papers.corpora import stories
from papers.corpora import transcripts

_with = functools.partial
READERS = {
    'arxiv': _with(documents.read_papers, name='arxiv'),
    'pubmed': _with(documents.read_papers, name='pubmed'),
    'govreport': _with(documents.read_scrolls, name='gov_report'),
    'govreport_authors': documents.read_gov_report,
    'summscreenfd': _with(documents.read_scrolls, name='summ_screen_fd'),
    'summscreen': transcripts.read_summscreen,
    'booksum_chapter': _with(stories.read_booksum, level='chapter'),
    'booksum_book': _with(stories.read_booksum, level='book'),
    'multinews': news.read_multi_news,
    'wcep': news.read_wcep,
    'narrativeqa': stories.read_narrative_qa,
    'narrativeqa_plot': _with(stories.read_narrative_qa, with_plot=True),
    'qmsum': transcripts.read_qmsum,
    'squality': stories.read_squality,
    'qasper': _with(
        documents.read_scrolls,
        name='qasper',
        convert=corpora.scrolls_with_query,
    ),
    'xsum': news.read_xsum,
}
