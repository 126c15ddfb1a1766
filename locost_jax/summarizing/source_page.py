"""The page that shows where a summary comes from: HTML, one file, no network.

The page shows the summary; for each of its sentences the passages that the
decoder attended to most and the passage closest in words; a strip of the
attention over the whole document; the document itself, linked both ways; and
the model, its settings and the time it took. For a model that selects tokens,
the page also shows how many and which.

The page works without JavaScript, except for choosing a sentence of the strip.
All text is escaped, the script gets only numbers, and the page's content policy
forbids other scripts and loading anything.

`page_contents` computes what a page shows, `page_html` writes its parts.
"""

import base64
import hashlib
import importlib.resources
import os
import re

import numpy as np

from locost_jax import files
from locost_jax.data import text as text_lib
from locost_jax.summarizing import attribution
from locost_jax.summarizing import outputs
from locost_jax.summarizing import page_contents
from locost_jax.summarizing import page_html
from locost_jax.summarizing import page_origin
from locost_jax.summarizing import page_parts
from locost_jax.summarizing import page_selection
from locost_jax.summarizing import page_weights
from locost_jax.summarizing.page_html import escape

_KEY = '<meta name="locost_jax" content="{}">'


def write(
    path,
    summarizer,
    name,
    text,
    tokens,
    settings,
    number=1,
    total=1,
    max_input_length=None,
    memory=None,
    origin=None,
    places=(),
    tabs=(),
    source=None,
):
  """Writes the page of one document.

  Args:
    path: of the report; with several documents the path of the index, with
      the pages next to it (`outputs.page_path`).
    tokens: ids of its summary as generated, without start. (For a summary
      known only as text: `reading.summary_tokens`.)
    settings: {name: value}, shown at the foot; None is left out.
    number: which document this is, from 1.
    total: documents of the report.
    max_input_length: as the document was read; None: all of it.
    memory: output of the model's `encode`; None: the text is encoded again.
    origin: {name: value} of `page_origin`; not part of the page's key.
    tabs: see `page`.
    source: `attribution.Source` of the summary; None: it is computed.

  Returns:
    (file name, name, summary), for `write_index`.
  """
  if source is None:
    source = attribution.attribute(
        summarizer, text, tokens, max_input_length, memory, places
    )
  own = outputs.page_path(path, number, total)
  key = page_key(name, text, settings)
  files.write(own, page(name, source, settings, key, origin, places, tabs))
  return os.path.basename(own), name, source.summary


def page_key(*contents):
  """Returns a hash of the contents that a page is made from."""
  return hashlib.sha256(
      repr(contents).encode('utf-8', 'surrogatepass')
  ).hexdigest()


def read_key(path):
  """Returns the key of a page; None if the file is no page."""
  with open(path, encoding='utf-8', errors='replace') as file:
    found = re.search(_KEY.format('([0-9a-f]*)'), file.read(2**12))
  return found and found[1]


def write_index(path, entries, key=''):
  """Writes the list of the pages of several documents.

  Args:
    path: of the report.
    entries: list of the return values of `write`.
    key: `page_key` of the documents.
  """
  items = ''.join(
      f'<li><a href="{escape(file)}">{escape(name)}</a>'
      f'<p>{escape(text_lib.squeeze(summary)[:300])}</p></li>'
      for file, name, summary in entries
  )
  title = f'{len(entries)} summaries'
  files.write(
      path,
      _render_page(
          title,
          f"""
<header><p class="kicker">Where the summaries come from</p><h1>{title}</h1>
</header>
<main><section class="index"><ol>{items}</ol></section></main>
{page_html.render_footer({})}""",
          key,
      ),
  )


def page(name, source, settings, key='', origin=None, places=(), tabs=()):
  """Returns the page of one document.

  Args:
    source: of `attribution.attribute`.
    settings: {name: value}, shown at the foot.
    key: see `page_key`.
    origin: {name: value} of `page_origin`, shown with the settings.
    tabs: ((question, file), ...) of the document; the file '' is this page.

  Returns:
    HTML.
  """
  contents = page_contents.collect(source, places)
  origin = origin or {}
  shown = {**page_origin.without_unused(settings), **origin}
  data = {
      'rows': contents.strips,
      'starts': [round(x, 5) for x in contents.edges[:-1].tolist()],
  }
  return _render_page(
      f'{name}: where its summary comes from',
      f"""
<header>
<p class="kicker">Where the summary comes from</p>
<h1>{escape(name)}</h1>
{page_html.render_tabs(tabs)}
<p class="facts">{' · '.join(_facts(source))}</p>
</header>
{_render_navigation(contents, _last_read(source))}
{_render_main(source, contents, page_origin.render_line(origin))}
{page_html.render_footer(shown)}
<script type="application/json" id="data">{page_html.embed_json(data)}</script>
""",
      key,
      script=True,
  )


def _facts(source):
  is_cut = source.tokens_kept < source.tokens_read
  return [
      f'{source.tokens_kept:,} tokens read'
      + (f' of {source.tokens_read:,}' if is_cut else ''),
      *([_count(source.pages.begins, 'page')] if source.pages else []),
      *([_count(source.parts, 'part')] if source.parts else []),
      *([page_selection.fact(source.selection)] if source.selection else []),
      _count(source.passages, 'passage'),
      _count(source.sentences, 'summary sentence'),
      *_copied_fact(source),
  ]


def _copied_fact(source):
  """Returns how many words were copied, where the model has a copy head."""
  if source.copied is None:
    return []
  words = len(source.summary.split())
  return [f'{len(source.copied):,} of {_number(words, "word")} copied']


def _count(things, noun):
  return _number(len(things), noun)


def _number(number, noun):
  return f'{number:,} {noun}{"" if number == 1 else "s"}'


def _render_navigation(contents, last):
  """Returns the strip over what was read, with the choice of sentences."""
  end = 'end' if last is None else f'¶ {last + 1}, where reading ended'
  chips = page_html.render_chips(contents.sentences)
  strip = page_html.render_strip(contents.strips[0], contents.quotes)
  return f"""\
<nav class="strip" aria-label="The document from beginning to end"><div>
<div class="chips"><a href="#summary" class="on">Whole summary</a>{chips}</div>
<div class="map">{strip}<div class="here" hidden></div>
<div class="tip" hidden><b></b><span></span></div></div>
<div class="ends"><span>beginning of the document</span><span>{end}</span></div>
</div></nav>"""


def _render_main(source, contents, origin):
  """Returns the summary, its sentences one by one, and the document."""
  summary = page_html.render_summary(contents.sentences)
  pages, spoken, begins = source.pages, '', ()
  of_sentence = [''] * len(source.sentences)
  if pages is not None:
    spoken, begins = page_weights.render(source.summary, pages), pages.begins
    of_sentence = [
        page_weights.render_sentence(pages.weights[pages.sentences == i])
        for i in range(len(source.sentences))
    ]
  if source.parts is not None:
    spoken = page_parts.render(source.parts, contents.part_places)
  read = switch = ''
  if source.selection is not None:
    read = page_selection.render(source.selection, contents.quotes)
    switch = page_selection.render_switch()
  articles = ''.join(
      page_html.render_sentence(i + 1, found, source.mass, contents, own_pages)
      for i, (found, own_pages) in enumerate(zip(source.sentences, of_sentence))
  )
  return f"""\
<main>
<section class="summary" id="summary"><h2>Summary</h2>
<p>{summary or 'The model wrote nothing.'}</p>{origin}</section>
{spoken}
<section><h2>Sentence by sentence</h2>
<p class="note">Left: the passages that the decoder attended to most while it
wrote the sentence. Each has three numbers: its share of the cross-attention
(averaged over layers and heads) during the sentence, the same during the whole
summary, and its share of the text. If the first two are alike, the passage says
little about this sentence. Attention is where the model looked, not why it
wrote a word.{_parts_note(source)} Right: the passage that
has most of the sentence’s words and pairs of words, rare ones counting more,
found without the model.{_copied_note(source)}</p>
{articles}</section>
{read}
<section class="document" id="document"><h2>The document</h2>
<p class="note">In the right margin: the sentences of the summary that
attended to a passage most.{_cut_note(source, contents)}</p>
{switch}
{page_html.render_document(contents, source.tokens, begins)}</section>
</main>"""


def _last_read(source):
  """Returns the last passage that was read if the document was cut, or None."""
  if source.tokens_kept >= source.tokens_read or not source.tokens.any():
    return None
  return int(np.flatnonzero(source.tokens)[-1])


def _cut_note(source, contents):
  last = _last_read(source)
  if last is None:
    return ''
  place = contents.places[last]
  place = place and f' ({escape(place)})'
  return (
      f' The model read {source.tokens_kept:,} of {source.tokens_read:,} tokens, '
      f'the last in <a href="#p{last + 1}">¶ {last + 1}</a>{place}; passages '
      'that it did not read are pale.'
  )


def _parts_note(source):
  return (
      ''
      if source.parts is None
      else ' The model read only the summaries of the parts; their attention '
      'on the document is followed through them.'
  )


def _copied_note(source):
  return (
      ''
      if source.copied is None
      else ' Underlined: words that the model copied, at least half of their '
      'probability; each is linked to the place in the document that weighed '
      'most.'
  )


def _render_page(title, body, key, script=False):
  """Returns a whole page; only its own script may run, nothing is loaded."""
  folder = importlib.resources.files(__package__)
  style = (folder / 'source_page.css').read_text('utf-8')
  code = (folder / 'source_page.js').read_text('utf-8') if script else ''
  digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
  policy = (
      f"default-src 'none'; style-src 'unsafe-inline'; "
      f"script-src 'sha256-{digest}'; base-uri 'none'; "
      f"form-action 'none'"
  )
  return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
{_KEY.format(key)}
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>{body}{f'<script>{code}</script>' if script else ''}
</body>
</html>
"""
