"""The page that shows where a summary comes from: HTML, one file, no network.

The page shows the summary; for each of its sentences the passages that the
decoder attended to most and the passage closest in words; a strip of the
attention over the whole document; the document itself, linked both ways; and
the model, its settings and the time it took. For a model that selects tokens,
the page also shows how many and which.

The page works without JavaScript, except for choosing a sentence of the strip.
The template escapes all text, the script gets only numbers, and the page's
content policy forbids other scripts and loading anything.

PageSum's decoder weighs the pages for every token (its equation 9). Its page
shows the page of highest weight for each word, and the weights of all pages for
all words (its figure 3).
"""

import base64
import bisect
import collections
import functools
import hashlib
import importlib.resources
import itertools
import re
from typing import NamedTuple

import jinja2
import numpy as np

from locost_jax.attribution import words as words_lib
from locost_jax.config import versions
from locost_jax.data import text as text_lib
from locost_jax.documents import places as places_lib

COLUMNS = 240  # of a strip
_QUOTED = 420  # maximum characters of a passage shown with a sentence
_RARE = 0.1  # a rare word is in at most this share of the passages
_APART = 4.0  # % of the width between two labels
_TOP = 3  # pages named for a word or sentence


class Copy(NamedTuple):
  """A copied word, in its sentence or in its passage."""

  start: int
  end: int
  number: int  # of its place in the document
  sentence: int  # that has it first
  share: float  # see `words.Copied`


def render(name, source, settings, key='', origin=None, places=(), query=''):
  """Returns the page of one document.

  Args:
    source: of `attribution.attribute`.
    settings: {name: value}, shown at the foot; None is left out, and the seed
      unless tokens were sampled.
    key: of what the page is made from, for `read_key`.
    origin: {name: value} of the model and the summary, shown with the settings.
    query: the question that the summary answers.

  Returns:
    HTML.
  """
  if settings.get('method') != 'sample':
    settings = dict(settings, seed=None)
  edges = np.append(0, np.cumsum(source.tokens)).astype(float)
  edges /= max(1.0, edges[-1])
  of_sentence, of_passage = _copies(source)
  passages = _passages(source, edges, places, of_passage)
  sentences = _sentences(source, edges, passages, of_sentence)
  strip = make_strip(source.mass, edges, [])
  last = None
  is_cut = source.tokens_read < source.tokens_total
  if is_cut and source.tokens.any():
    last = passages[np.flatnonzero(source.tokens)[-1]]
  rows = [strip, *(sentence['strip'] for sentence in sentences)]
  return _render(
      'page.html',
      f'{name}: where its summary comes from',
      key,
      _read('page.js'),
      dict(
          name=name,
          query=query,
          source=source,
          is_cut=is_cut,
          last=last,
          passages=passages,
          sentences=sentences,
          strip=strip,
          words=_words(source),
          selection=source.selection,
          origin=origin,
          settings=settings | (origin or {}),
          data=dict(
              rows=rows, starts=[round(x, 5) for x in edges[:-1].tolist()]
          ),
      ),
  )


def render_index(entries, key='', left_out=(), settings=()):
  """Returns the page that lists (file, name, summary) of several documents.

  Args:
    left_out: objects with the `name` of a document that has no summary, and the
      `reason`.
    settings: as of `render`.
  """
  values = dict(entries=entries, left_out=left_out, settings=dict(settings))
  return _render('index.html', f'{len(entries)} summaries', key, '', values)


def read_key(path):
  """Returns the key of a page; None if the file is no page."""
  with open(path, encoding='utf-8', errors='replace') as file:
    found = re.search(
        '<meta name="locost_jax" content="([0-9a-f]*)">', file.read(2**12)
    )
  return found and found[1]


def format_share(share):
  """Returns a share as percent."""
  percent = 100 * share
  if 0 < percent < 0.01:
    return '<\u202f0.01\u202f%'
  digits = 0 if percent >= 10 else 1 if percent >= 1 else 2
  return f'{percent:.{digits}f}\u202f%'


def _counted(things, noun):
  return f'{len(things):,} {noun}{"" if len(things) == 1 else "s"}'


def _read(name):
  return (importlib.resources.files(__package__) / name).read_text('utf-8')


@functools.cache
def _templates():
  templates = jinja2.Environment(
      autoescape=True,
      undefined=jinja2.StrictUndefined,
      loader=jinja2.FunctionLoader(_read),
      trim_blocks=True,
      lstrip_blocks=True,
      keep_trailing_newline=True,
  )
  templates.filters.update(
      counted=_counted,
      number='{:,}'.format,
      share=format_share,
      squeeze=text_lib.squeeze,
  )
  return templates


def _render(template, title, key, script, values):
  """Returns a whole page; only its own script may run, nothing is loaded."""
  digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
  page = (
      _templates()
      .get_template(template)
      .render(
          values,
          title=title,
          key=key,
          script=script,
          digest=digest,
          style=_read('page.css'),
          version=versions.__version__,
      )
  )
  # A lone surrogate (JSON allows them) has no UTF-8 form.
  return page.encode('utf-8', errors='replace').decode()


def cut_pieces(text, links, marks, begin, stop):
  """Cuts text[begin:stop] at links and marks.

  Args:
    links: list of (start, end, ...) in order, inside of begin and stop.
    marks: list of (start, end) in order.

  Returns:
    A list of (link or None, [(text, whether it is marked), ...]); white space
    is squeezed.
  """
  first = bisect.bisect_right(marks, begin, key=lambda span: span[1])
  last = bisect.bisect_left(marks, stop, key=lambda span: span[0])
  marks = marks[first:last]
  edges = {begin, stop}.union(*(span[:2] for span in (*links, *marks)))
  edges = sorted(edge for edge in edges if begin <= edge <= stop)
  cells = [
      (
          _containing(links, span),
          re.sub(r'\s+', ' ', text[slice(*span)]),
          _containing(marks, span) is not None,
      )
      for span in itertools.pairwise(edges)
  ]
  return [
      (None if i is None else links[i], [cell[1:] for cell in group])
      for i, group in itertools.groupby(cells, key=lambda cell: cell[0])
  ]


def join_spans(text, spans):
  """Joins spans with only white space between them; none is at their ends."""
  found = []
  for start, end in spans:
    start = end - len(text[start:end].lstrip())
    end = start + len(text[start:end].rstrip())
    if start < end and found and not text[found[-1][1] : start].strip():
      start, _ = found.pop()
    if start < end:
      found.append((start, end))
  return found


def _passages(source, edges, places, copied):
  """Returns a dict for each passage of the document."""
  heat = source.mass / np.maximum(source.tokens, 1)
  heat = heat / (heat.max(initial=0) or 1)
  attended_by, closest_to, pages = (
      collections.defaultdict(list) for _ in range(3)
  )
  for i, sentence in enumerate(source.sentences, start=1):
    for match in sentence.attended:
      attended_by[match.passage].append(i)
    if sentence.closest:
      closest_to[sentence.closest.passage].append(i)
  for page, p in enumerate(source.pages.begins if source.pages else ()):
    pages[p].append(page + 1)
  spans = source.selection.spans if source.selection else ()
  selected = join_spans(source.text, spans)
  found, place = [], ''
  for p, (begin, stop) in enumerate(source.passages):
    before, place = place, places_lib.label_of(places, (begin, stop))
    found.append(
        dict(
            number=p + 1,
            quote=text_lib.squeeze(source.text[begin:stop]),
            place=place,
            heading=place if place != before else '',
            pages=pages[p],
            is_read=source.tokens[p] > 0,
            mass=source.mass[p],
            heat=heat[p],
            width=edges[p + 1] - edges[p],  # its share of the text
            middle=50 * (edges[p] + edges[p + 1]),  # in the text, in percent
            attended_by=attended_by[p],
            closest_to=closest_to[p],
            pieces=cut_pieces(source.text, copied[p], selected, begin, stop),
        )
    )
  return found


def _sentences(source, edges, passages, copied):
  """Returns a dict for each sentence of the summary."""
  is_rare, found = _find_rare_words(p['quote'] for p in passages), []
  for i, sentence in enumerate(source.sentences):
    text = text_lib.squeeze(source.summary[slice(*sentence.span)])
    pages = ()
    if source.pages:
      own = source.pages.weights[source.pages.sentences == i]
      pages = _top_pages(own.mean(0)) if len(own) else ()
    show = lambda match, text=text: _excerpt(
        passages[match.passage], text, match.score, is_rare
    )
    found.append(
        dict(
            number=i + 1,
            text=text,
            pieces=cut_pieces(source.summary, copied[i], (), *sentence.span),
            strip=make_strip(
                sentence.mass, edges, [m.passage + 1 for m in sentence.attended]
            ),
            attended=[show(match) for match in sentence.attended],
            labels=spread(
                [passages[m.passage]['middle'] for m in sentence.attended]
            ),
            closest=sentence.closest and show(sentence.closest),
            pages=pages,
        )
    )
  return found


def spread(places):
  """Moves labels at 0 to 100 % apart, so that they do not overprint."""
  found = np.array(places, float)
  order = np.argsort(found, kind='stable')
  steps = _APART * np.arange(len(order))
  found[order] = np.maximum.accumulate(found[order] - steps) + steps
  found[order] = np.minimum(found[order], 100 - steps[::-1])
  return found.tolist()


def _top_pages(weights):
  """Returns [(page, weight), ...] of the pages that counted most."""
  best = np.argsort(-weights, kind='stable')[:_TOP]
  return [(p + 1, weights[p]) for p in best]


def _words(source):
  """Returns a dict for each word of a summary whose pages have weights."""
  if source.pages is None:
    return []
  spans, weights = words_lib.page_weights(source.summary, source.pages)
  return [
      dict(text=source.summary[slice(*span)], weights=own, top=_top_pages(own))
      for span, own in zip(spans, weights)
  ]


def _copies(source):
  """Returns the Copy list of each sentence, and of each passage."""
  of_sentence = [[] for _ in source.sentences]
  of_passage = [[] for _ in source.passages]
  sentences = [sentence.span for sentence in source.sentences]
  places = {}  # (start, end) -> its Copy
  for span, place, share in source.copied or ():
    i, p = _containing(sentences, span), _containing(source.passages, place)
    if i is None or p is None:
      continue
    if place not in places:
      places[place] = Copy(*place, len(places) + 1, i + 1, share)
      of_passage[p].append(places[place])
    of_sentence[i].append(Copy(*span, places[place].number, i + 1, share))
  return of_sentence, [sorted(found) for found in of_passage]


def _containing(spans, span):
  """Returns the index of the span that contains another, or None."""
  i = bisect.bisect_right(spans, span[0], key=lambda own: own[0]) - 1
  return i if i >= 0 and span[1] <= spans[i][1] else None


def make_strip(mass, edges, top):
  """Makes the strip of one sentence, which the page's script reads.

  Args:
    mass: [P].
    edges: [P + 1], where passages begin and end, from 0 to 1.
    top: numbers of the passages to point at.

  Returns:
    dict of `mass` and `passage`, lists of COLUMNS values, and `top`.
  """
  if not edges[-1]:  # nothing was read
    return {'mass': [0.0] * COLUMNS, 'passage': [1] * COLUMNS, 'top': top}
  cuts = np.linspace(0, 1, COLUMNS + 1)
  # np.interp needs increasing edges; passages not read have no width.
  read = np.append(np.flatnonzero(np.diff(edges) > 0), len(mass))
  total = np.append(0, np.cumsum(mass))
  columns = np.diff(np.interp(cuts, edges[read], total[read]))
  first = np.searchsorted(edges[read], cuts[:-1], 'right') - 1
  last = np.searchsorted(edges[read], cuts[1:], 'left') - 1
  strongest = [
      int(read[a + np.argmax(mass[read[a : b + 1]])]) + 1
      for a, b in zip(first, np.maximum(first, last))
  ]
  return {
      'mass': [round(x, 6) for x in columns.tolist()],
      'passage': strongest,
      'top': top,
  }


def _find_rare_words(quotes):
  """Returns a function: word -> whether few passages have it."""
  counts, total = collections.Counter(), 0
  for total, quote in enumerate(quotes, start=1):
    counts.update(set(words_lib.words(quote)))
  most = max(2, _RARE * total)
  return lambda word: counts[word] <= most


def find_shared_phrases(quote, sentence, is_rare):
  """Returns the (start, end) of the phrases a passage shares with a sentence.

  A phrase is a run of shared words from its first rare word to its last.
  """
  shared, phrases = set(words_lib.words(sentence)), []
  for is_shared, run in itertools.groupby(
      words_lib.word_spans(quote), key=lambda found: found[-1] in shared
  ):
    rare = [found for found in run if is_shared and is_rare(found[-1])]
    if rare:
      phrases.append((rare[0][0], rare[-1][1]))
  return phrases


def _excerpt(passage, sentence, score, is_rare):
  """Returns what is shown of a passage with a sentence, phrases marked."""
  quote = passage['quote']
  phrases = find_shared_phrases(quote, sentence, is_rare)
  begin, stop = choose_excerpt(quote, phrases)
  inside = [span for span in phrases if begin <= span[0] and span[1] <= stop]
  return dict(
      passage=passage,
      score=score,
      begin=begin,
      pieces=dict(cut_pieces(quote, (), inside, begin, stop)).get(None, ()),
      is_cut=stop < len(quote),
  )


def choose_excerpt(quote, phrases):
  """Returns the (start, end) of a passage to show: around the first phrase."""
  begin, stop = 0, len(quote)
  if stop <= _QUOTED:
    return begin, stop
  first = max(0, phrases[0][0] - _QUOTED // 3) if phrases else 0
  begin = quote.rfind(' ', 0, min(first, stop - _QUOTED)) + 1
  if begin + _QUOTED >= stop:
    return begin, stop
  cut = quote.rfind(' ', begin, begin + _QUOTED)
  return begin, cut if cut > begin else begin + _QUOTED
