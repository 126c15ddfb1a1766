"""The HTML of a source page's parts: strips, sentences, passages, quotes.

All text goes through `escape`, all data through `embed_json`.
"""

import html
import json

import locost_jax
from locost_jax.summarizing import page_contents
from locost_jax.summarizing.page_contents import COLUMNS

_RUN = 60  # passages that the browser lays out together


def escape(text):
  """Returns a text as HTML."""
  # A lone surrogate (JSON allows them) has no UTF-8 form.
  text = text.encode('utf-8', errors='replace').decode()
  return html.escape(text, quote=True)


def embed_json(data):
  """Returns JSON that cannot close the element around it."""
  return json.dumps(data, separators=(',', ':')).replace('<', '\\u003c')


def format_share(share):
  """Returns a share as percent, in HTML."""
  percent = 100 * share
  if 0 < percent < 0.01:
    return '&lt;\u202f0.01\u202f%'
  digits = 0 if percent >= 10 else 1 if percent >= 1 else 2
  return f'{percent:.{digits}f}\u202f%'


def render_strip(row, quotes):
  """Returns a strip as a picture whose columns are links.

  Args:
    row: of `page_contents.make_strip`.
    quotes: texts of the passages.
  """
  most = max(row['mass']) or 1
  cells = ''.join(
      f'<a href="#p{p}" tabindex="-1"><title>¶ {p}: '
      f'{escape(quotes[p - 1][:90])}</title><rect x="{i}" width="1" '
      f'height="1" fill-opacity="{(mass / most)**.7:.3f}"/></a>'
      for i, (mass, p) in enumerate(zip(row['mass'], row['passage']))
  )
  return (
      f'<svg viewBox="0 0 {COLUMNS} 1" preserveAspectRatio="none" '
      f'role="img" aria-label="Attention over the document">{cells}</svg>'
  )


def render_chips(sentences):
  """Returns a numbered link to each sentence."""
  return ''.join(
      f'<a href="#s{i}" title="{escape(s[:160])}">{i}</a>'
      for i, s in enumerate(sentences, start=1)
  )


def render_summary(sentences):
  """Returns the summary, each sentence a link."""
  return ' '.join(
      f'<a href="#s{i}"><bdi>{escape(s)}</bdi><sup>{i}</sup></a>'
      for i, s in enumerate(sentences, start=1)
  )


def render_sentence(i, found, overall, contents, pages=''):
  """Returns one sentence with its passages.

  Args:
    i: its number, from 1.
    found: its `written_tokens.Sentence`.
    overall: [P], the mass of the whole summary.
    pages: HTML of the weight of each page.
  """
  edges, words = contents.edges, _render_words(i, contents)
  links = ''.join(
      f'<a href="#p{m.passage + 1}" style="left:'
      f'{50 * (edges[m.passage] + edges[m.passage + 1]):.2f}%">{place}</a>'
      for place, m in enumerate(found.attended, start=1)
  )
  bars = _render_bars(contents.strips[i])
  attended = _render_attended(i, found, overall, contents)
  closest = _render_closest(i, found, contents)
  return f"""
<article id="s{i}">
<h3><a class="number" href="#summary">{i}</a><span>{words}</span></h3>
<div class="mini">{links}<svg viewBox="0 0 {COLUMNS} 20" role="img"
 aria-label="Attention of sentence {i} over the document"
 preserveAspectRatio="none"><path d="{bars}"/></svg></div>
{pages}<div class="columns"><section class="attended"><h4>Attended to</h4>
<ol>{attended}</ol></section>
<section class="closest"><h4>Closest in words</h4>{closest}</section></div>
</article>"""


def _render_words(i, contents):
  """Returns sentence i, its copied words linked to their places."""
  text, parts, at = contents.sentences[i - 1], [], 0
  for (start, end), number, share in contents.copied[i - 1]:
    parts += [
        escape(text[at:start]),
        f'<a class="copied" href="#c{number}" title="copied: '
        f'{format_share(share)} of its probability">'
        f'{escape(text[start:end])}</a>',
    ]
    at = end
  return ''.join([*parts, escape(text[at:])])


def _render_bars(row):
  """Returns the path of a strip drawn as bars."""
  most = max(row['mass']) or 1
  return ''.join(
      f'M{x} 20V{20 - 20 * mass / most:.2f}h1V20z'
      for x, mass in enumerate(row['mass'])
      if mass > most / 500
  )


def _render_attended(i, found, overall, contents):
  """Returns the list of the passages that a sentence attended to."""
  highest = max([m.score for m in found.attended], default=0) or 1
  edges, items = contents.edges, []
  for m in found.attended:
    width = edges[m.passage + 1] - edges[m.passage]
    label = (
        f'<b>{format_share(m.score)}</b> of the attention; '
        f'summary {format_share(overall[m.passage])}, '
        f'text {format_share(width)}'
    )
    item = _render_match(i, m.passage, m.score / highest, label, contents)
    items.append(f'<li>{item}</li>')
  return ''.join(items)


def _render_closest(i, found, contents):
  """Returns the passage that is closest to a sentence in words."""
  if found.closest is None:
    return '<p class="note">No passage shares a word with it.</p>'
  places = [m.passage for m in found.attended]
  n, score = found.closest
  also = (
      f', also place {places.index(n) + 1} at the left' if n in places else ''
  )
  label = f'has <b>{format_share(score)}</b> of its words{also}'
  return _render_match(i, n, score, label, contents)


def _render_match(i, passage, bar, label, contents):
  """Returns a passage shown with sentence i.

  Args:
    i: number of the sentence, from 1.
    passage: which, from 0.
    bar: length of its bar, from 0 to 1.
    label: HTML behind the bar.
  """
  n = passage + 1
  marked = render_quote(
      contents.quotes[passage], contents.sentences[i - 1], contents.is_rare
  )
  place = contents.places[passage]
  place = place and f'<span class="place">{escape(place)}</span>'
  return (
      f'<div class="where"><a href="#p{n}">¶ {n}</a>{place}'
      f'<span class="bar"><i style="width:{100 * bar:.1f}%"></i></span>'
      f'<span>{label}</span></div><blockquote><a href="#p{n}">{marked}'
      f'</a></blockquote>'
  )


def render_quote(text, sentence_text, is_rare):
  """Returns an excerpt of a passage; phrases shared with a sentence are marked.

  Args:
    text: of the passage.
    is_rare: word -> bool.
  """
  phrases = page_contents.find_shared_phrases(text, sentence_text, is_rare)
  begin, stop = page_contents.choose_excerpt(text, phrases)
  dots = '<span class="rest">…</span>'
  return (
      (f'{dots} ' if begin else '')
      + _render_marked(text, phrases, begin, stop)
      + (f' {dots}' if stop < len(text) else '')
  )


def _render_marked(text, spans, begin, stop):
  """Returns text[begin:stop] with the spans marked that lie inside it."""
  parts, at = [], begin
  for start, end in spans:
    if start >= at and end <= stop:
      parts += [
          escape(text[at:start]),
          f'<mark>{escape(text[start:end])}</mark>',
      ]
      at = end
  parts.append(escape(text[at:stop]))
  return ''.join(parts)


def render_document(contents, tokens, pages=()):
  """Returns all passages, in runs that a browser lays out one by one.

  Args:
    tokens: int [P], tokens of each passage that the model read.
    pages: the passage that each page of the document begins in.
  """
  marks = {}
  for page, passage in enumerate(pages, start=1):
    mark = f'<h3 class="mark" id="page{page}">Page {page}</h3>'
    marks[passage] = marks.get(passage, '') + mark
  before = ''
  for passage, place in enumerate(contents.places):
    if place and place != before:
      mark = f'<h3 class="mark">{escape(place)}</h3>'
      marks[passage] = marks.get(passage, '') + mark
    before = place
  passages = [
      marks.get(i, '') + _render_passage(i, contents, count)
      for i, count in enumerate(tokens)
  ]
  return ''.join(
      f'<div class="run">{"".join(passages[i:i + _RUN])}</div>\n'
      for i in range(0, len(passages), _RUN)
  )


def _render_passage(i, contents, tokens):
  """Returns one passage of the document.

  Args:
    i: which, from 0.
    tokens: number of its tokens that the model read.
  """
  heat, text = contents.heat[i], contents.quotes[i]
  shown = _render_places(text, contents.selected[i], contents.copied_from[i])
  kind = 'unread' if not tokens else 'hot' if heat > 0.02 else ''
  style = f' style="--heat-part:{100 * heat**.7:.0f}"' if kind == 'hot' else ''
  links = ''.join(
      f'<a href="#s{s}" title="Sentence {s} attended to this">← {s}</a> '
      for s in contents.attended_by[i]
  )
  links += ''.join(
      f'<a href="#s{s}" class="like" title="Closest in words to sentence {s}">'
      f'≈ {s}</a> '
      for s in contents.closest_to[i]
  )
  back = f'<span class="back">{links}</span>' if links else ''
  return (
      f'<p id="p{i + 1}"'
      + (f' class="{kind}"' if kind else '')
      + style
      + f'><a class="n" href="#p{i + 1}">{i + 1}</a>'
      f'<span>{shown}</span>{back}</p>'
  )


def _render_places(text, selected, places):
  """Returns a passage with selected tokens marked and copied words linked."""

  def render(begin, stop):
    own = [(max(a, begin), min(b, stop)) for a, b in selected]
    return _render_marked(text, [s for s in own if s[0] < s[1]], begin, stop)

  parts, at = [], 0
  for (start, end), number, sentence in places:
    parts += [
        render(at, start),
        f'<a class="copied" id="c{number}" href="#s{sentence}" title="Copied '
        f'into sentence {sentence}">{render(start, end)}</a>',
    ]
    at = end
  return ''.join([*parts, render(at, len(text))])


def render_tabs(tabs):
  """Returns the questions about a document, linked to their pages.

  Args:
    tabs: ((question, file), ...); the file '' is this page.
  """
  links = ''.join(
      f'<li><a href="{escape(file)}">{escape(question)}</a></li>'
      if file
      else f'<li><a aria-current="page">{escape(question)}</a></li>'
      for question, file in tabs
  )
  return links and (
      f'<nav class="tabs" aria-label="Questions about this document"><ul>{links}'
      '</ul></nav>'
  )


def render_footer(settings):
  """Returns the foot of a page.

  Args:
    settings: {name: value}; None is left out.
  """
  rows = ''.join(
      f'<dt>{escape(str(key))}</dt><dd>{escape(str(value))}</dd>'
      for key, value in settings.items()
      if value is not None
  )
  return (
      f'<footer id="settings"><h2>Settings</h2><dl>{rows}'
      f'<dt>locost_jax</dt><dd>{locost_jax.__version__}</dd></dl></footer>'
  )
