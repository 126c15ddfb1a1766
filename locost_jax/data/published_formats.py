"""The table of readers: what the authors of the corpora published, as rows.

READERS has a function for each task: directory -> iterator of (split, row), row
a dict of id, document and summary, with query, sections, documents, references
where the corpus has them. data/prepare.py writes them as JSON Lines; the facts
about the corpora are in data/corpora.py, the readers in data/published/.

A missing text is no error: its row is None, and whoever writes counts it. A
missing file or folder that the whole corpus needs is an InputError.
"""

import functools

from locost_jax.data import tfds_rows
from locost_jax.data.published import news
from locost_jax.data.published import papers
from locost_jax.data.published import reports
from locost_jax.data.published import scrolls
from locost_jax.data.published import stories
from locost_jax.data.published import transcripts

READERS = {
    'arxiv': functools.partial(papers.read_papers, name='arxiv'),
    'pubmed': functools.partial(papers.read_papers, name='pubmed'),
    'govreport': functools.partial(scrolls.read_scrolls, name='gov_report'),
    'govreport_authors': reports.read_gov_report,
    'summscreenfd': functools.partial(
        scrolls.read_scrolls, name='summ_screen_fd'
    ),
    'summscreen': transcripts.read_summscreen,
    'booksum_chapter': functools.partial(stories.read_booksum, level='chapter'),
    'booksum_book': functools.partial(stories.read_booksum, level='book'),
    'multinews': news.read_multi_news,
    'wcep': news.read_wcep,
    'narrativeqa': stories.read_narrative_qa,
    'narrativeqa_plot': functools.partial(
        stories.read_narrative_qa, with_plot=True
    ),
    'qmsum': transcripts.read_qmsum,
    'squality': stories.read_squality,
    'qasper': functools.partial(
        scrolls.read_scrolls,
        name='qasper',
        convert=tfds_rows.scrolls_with_query,
    ),
    'xsum': news.read_xsum,
}
