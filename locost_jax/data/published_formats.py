"""The table of readers of the files that authors of corpora published.

READERS maps each task to a function (directory) -> iterator of (split, row). A
row is a dict of id, document and summary, and optionally query, sections,
documents and references. data/prepare.py writes the rows as JSON Lines. The
readers are in data/published/, the facts about the corpora in data/corpora.py.

A row whose text is missing is None, and data/prepare.py counts it. A missing
file or folder of the whole corpus is an InputError.
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
