"""The page that shows where a summary comes from: HTML, one file, no network.

The summary; for each of its sentences the passages that the decoder attended
to most and the passage closest in words; a strip of the attention over the
whole document; the document itself, linked both ways; settings and versions.

Everything but the strip's choice of a sentence works without JavaScript. All
text is escaped, scripts get numbers only, and the page's own policy lets no
other script run and nothing be loaded.
"""

import base64
import hashlib
import html
import importlib.resources
import json
import os

import numpy as np

import locost_jax
from locost_jax import attribution
from locost_jax.data import text as text_lib
from locost_jax.workdir import write as write_file

COLUMNS = 240  # of the strip
_RUN = 60  # passages that a browser lays out together
_QUOTED = 420  # characters of a passage shown beside a sentence
# A word is telling when at most this part of the passages has it.
_RARE = 0.1


def page_path(path, number, total):
  """The file of one of `total` documents: out.html, or out-1.html, ..."""
  if total == 1:
    return path
  stem, extension = os.path.splitext(path)
  return f'{stem}-{number:0{len(str(total))}}{extension or ".html"}'


def write(path, summarizer, name, text, tokens, settings, number=1, total=1,
          max_input_length=None, memory=None):
  """Writes the page of one document.

  Args:
    path: of the report; with several documents it is that of the index, and
      the pages lie beside it (`page_path`).
    summarizer: of `locost_jax.load`, with a vocabulary.
    name: what the document is called.
    text: the document.
    tokens: ids of its summary as generated, without start. (Of a summary that
      is only there as text: `summarizer.tokenize(summary)`.)
    settings: {name: value}, shown at the foot; None is left out.
    number: which document this is, from 1.
    total: documents of the report.
    max_input_length: as the document was read; None: all of it.
    memory: what the model's `encode` gave for it; None: it is read again.

  Returns:
    (file name, name, summary), for `write_index`.
  """
  source = attribution.attribute(
      summarizer, text, tokens, max_input_length, memory)
  own = page_path(path, number, total)
  write_file(own, page(name, source, settings))
  return os.path.basename(own), name, source.summary


def write_index(path, entries):
  """Writes the list of the pages of several documents.

  Args:
    path: of the report.
    entries: what `write` returned for each.
  """
  items = ''.join(
      f'<li><a href="{_escape(file)}">{_escape(name)}</a>'
      f'<p>{_escape(text_lib.squeeze(summary)[:300])}</p></li>'
      for file, name, summary in entries)
  title = f'{len(entries)} summaries'
  write_file(path, _html(title, f"""
<header><p class="kicker">Where the summaries come from</p><h1>{title}</h1>
</header>
<main><section class="index"><ol>{items}</ol></section></main>
{_footer({})}"""))


def page(name, source, settings):
  """The page of one document.

  Args:
    name: what the document is called.
    source: of `attribution.attribute`.
    settings: {name: value}, shown at the foot.

  Returns:
    HTML.
  """
  text, P = source.text, len(source.passages)
  quotes = [text_lib.squeeze(text[start:end])
            for start, end in source.passages]
  edges = np.append(0, np.cumsum(source.tokens)).astype(float)
  edges /= max(1., edges[-1])
  readers = [[] for _ in range(P)]  # sentences that drew on each passage
  likes = [[] for _ in range(P)]
  for i, sentence in enumerate(source.sentences, start=1):
    for match in sentence.attended:
      readers[match.passage].append(i)
    if sentence.closest:
      likes[sentence.closest.passage].append(i)
  rare = _rare_words(quotes)
  sentences = [text_lib.squeeze(source.summary[slice(*s.span)])
               for s in source.sentences]

  rows = [_row(source.mass, edges, [])]
  rows += [_row(s.mass, edges, [m.passage + 1 for m in s.attended])
           for s in source.sentences]
  data = {'rows': rows, 'starts': [round(x, 5) for x in edges[:-1].tolist()]}
  cut = source.tokens_kept < source.tokens_read
  facts = [f'{source.tokens_kept:,} tokens read'
           + (f' of {source.tokens_read:,}' if cut else ''),
           _many(P, 'passage'), _many(len(sentences), 'summary sentence')]
  chips = ''.join(f'<a href="#s{i}" title="{_escape(s[:160])}">{i}</a>'
                  for i, s in enumerate(sentences, start=1))
  summary = ' '.join(
      f'<a href="#s{i}">{_escape(s)}<sup>{i}</sup></a>'
      for i, s in enumerate(sentences, start=1))
  articles = ''.join(
      _article(i, sentence, sentences[i - 1], quotes, edges, rows[i],
               source.mass, rare)
      for i, sentence in enumerate(source.sentences, start=1))
  heat = source.mass / np.maximum(source.tokens, 1)
  heat /= heat.max(initial=0) or 1
  passages = [
      _passage(i, quote, heat[i], source.tokens[i], readers[i], likes[i])
      for i, quote in enumerate(quotes)]
  runs = ''.join(f'<div class="run">{"".join(passages[i:i + _RUN])}</div>\n'
                 for i in range(0, P, _RUN))
  return _html(f'{name}: where its summary comes from', f"""
<header>
<p class="kicker">Where the summary comes from</p>
<h1>{_escape(name)}</h1>
<p class="facts">{' · '.join(facts)}</p>
</header>
<nav class="strip" aria-label="The document from beginning to end"><div>
<div class="chips"><a href="#summary" class="on">Whole summary</a>{chips}</div>
<div class="map">{_strip(rows[0], quotes)}<div class="here" hidden></div>
<div class="tip" hidden><b></b><span></span></div></div>
<div class="ends"><span>beginning of the document</span><span>end</span></div>
</div></nav>
<main>
<section class="summary" id="summary"><h2>Summary</h2>
<p>{summary or 'The model wrote nothing.'}</p></section>
<section><h2>Sentence by sentence</h2>
<p class="note">Left: what the decoder attended to while it wrote the sentence,
in percent of its cross-attention, averaged over layers and heads; behind it the
same for the whole summary, and the passage’s part of the text. This is where
the model looked, not why it wrote what it wrote. What it attended to as much
for the whole summary says little about one sentence. Right: the passage that
has most of the sentence’s words and pairs of words, rare ones counting more,
found without the model.</p>
{articles}</section>
<section class="document"><h2>The document</h2>
<p class="note">In the right margin: the sentences of the summary that
attended to a passage most.</p>
{runs}</section>
</main>
{_footer(settings)}
<script type="application/json" id="data">{_json(data)}</script>
""", script=True)


def _escape(text):
  # A lone surrogate (JSON allows them) has no UTF-8 form.
  text = text.encode('utf-8', errors='replace').decode()
  return html.escape(text, quote=True)


def _json(data):
  """JSON that cannot end the element it stands in."""
  return json.dumps(data, separators=(',', ':')).replace('<', '\\u003c')


def _many(number, noun):
  return f'{number:,} {noun}{"" if number == 1 else "s"}'


def _percent(part):
  percent = 100 * part
  if 0 < percent < 0.01:
    return '&lt;\u20090.01\u2009%'
  digits = 0 if percent >= 10 else 1 if percent >= 1 else 2
  return f'{percent:.{digits}f}\u2009%'


def _row(mass, edges, top):
  """The strip of one sentence: for each column its mass and its passage.

  Args:
    mass: [P].
    edges: [P + 1], where passages begin and end, from 0 to 1.
    top: numbers of the passages to point at.
  """
  cuts = np.linspace(0, 1, COLUMNS + 1)
  # Passages that were not read have no width; interp wants rising edges.
  read = np.append(np.flatnonzero(np.diff(edges) > 0), len(mass))
  total = np.append(0, np.cumsum(mass))
  columns = np.diff(np.interp(cuts, edges[read], total[read]))
  first = np.searchsorted(edges[read], cuts[:-1], 'right') - 1
  last = np.searchsorted(edges[read], cuts[1:], 'left') - 1
  strongest = [int(read[a + np.argmax(mass[read[a:b + 1]])]) + 1
               for a, b in zip(first, np.maximum(first, last))]
  return {'mass': [round(x, 6) for x in columns.tolist()],
          'passage': strongest, 'top': top}


def _strip(row, quotes):
  """The strip as a picture whose columns are links."""
  most = max(row['mass']) or 1
  cells = ''.join(
      f'<a href="#p{p}" tabindex="-1"><title>¶ {p}: '
      f'{_escape(quotes[p - 1][:90])}</title><rect x="{i}" width="1" '
      f'height="1" fill-opacity="{(mass / most)**.7:.3f}"/></a>'
      for i, (mass, p) in enumerate(zip(row['mass'], row['passage'])))
  return (f'<svg viewBox="0 0 {COLUMNS} 1" preserveAspectRatio="none" '
          f'role="img" aria-label="Attention over the document">{cells}</svg>')


def _article(i, sentence, text, quotes, edges, row, overall, rare):
  """One sentence with its passages; i counts from 1."""
  most = max(row['mass']) or 1
  bars = ''.join(f'M{x} 20V{20 - 20 * mass / most:.2f}h1V20z'
                 for x, mass in enumerate(row['mass']) if mass > most / 500)
  links = ''.join(
      f'<a href="#p{m.passage + 1}" style="left:'
      f'{50 * (edges[m.passage] + edges[m.passage + 1]):.2f}%">{place}</a>'
      for place, m in enumerate(sentence.attended, start=1))
  highest = max([m.score for m in sentence.attended], default=0) or 1

  def item(match, bar, label):
    n = match.passage
    quote = _quote(quotes[n], text, rare)
    return (f'<div class="where"><a href="#p{n + 1}">¶ {n + 1}</a>'
            f'<span class="bar"><i style="width:{100 * bar:.1f}%"></i></span>'
            f'<span>{label}</span></div><blockquote><a href="#p{n + 1}">{quote}'
            f'</a></blockquote>')

  attended = ''.join('<li>' + item(
      m, m.score / highest,
      f'<b>{_percent(m.score)}</b> of the attention; '
      f'summary {_percent(overall[m.passage])}, '
      f'text {_percent(edges[m.passage + 1] - edges[m.passage])}')
      + '</li>' for m in sentence.attended)
  if sentence.closest is None:
    closest = '<p class="note">No passage shares a word with it.</p>'
  else:
    places = [m.passage for m in sentence.attended]
    n = sentence.closest.passage
    also = (f', also place {places.index(n) + 1} at the left'
            if n in places else '')
    closest = item(sentence.closest, sentence.closest.score,
                   f'has <b>{_percent(sentence.closest.score)}</b>{also}')
  return f"""
<article id="s{i}">
<h3><a class="number" href="#summary">{i}</a><span>{_escape(text)}</span></h3>
<div class="mini">{links}<svg viewBox="0 0 {COLUMNS} 20" role="img"
 aria-label="Attention of sentence {i} over the document"
 preserveAspectRatio="none"><path d="{bars}"/></svg></div>
<div class="columns"><section class="attended"><h4>Attended to</h4>
<ol>{attended}</ol></section>
<section class="closest"><h4>Closest in words</h4>{closest}</section></div>
</article>"""


def _passage(i, quote, heat, tokens, readers, likes):
  """One passage of the document.

  Args:
    i: which, from 0.
    quote: its text.
    heat: attention per token, 1 where it is highest.
    tokens: how many the model read of it.
    readers: numbers of the sentences that attended to it most.
    likes: numbers of the sentences to which it is closest in words.
  """
  kind = 'unread' if not tokens else 'hot' if heat > 0.02 else ''
  style = f' style="--heat-part:{100 * heat**.7:.0f}"' if kind == 'hot' else ''
  links = ''.join(
      f'<a href="#s{s}" title="Sentence {s} attended to this">← {s}</a> '
      for s in readers)
  links += ''.join(
      f'<a href="#s{s}" class="like" title="Closest in words to sentence {s}">'
      f'≈ {s}</a> ' for s in likes)
  back = f'<span class="back">{links}</span>' if links else ''
  return (f'<p id="p{i + 1}"' + (f' class="{kind}"' if kind else '') + style
          + f'><a class="n" href="#p{i + 1}">{i + 1}</a>'
          f'<span>{_escape(quote)}</span>{back}</p>')


def _rare_words(quotes):
  """A function: whether few passages have a word."""
  counts = {}
  for quote in quotes:
    for word in set(attribution.words(quote)):
      counts[word] = counts.get(word, 0) + 1
  most = max(2, _RARE * len(quotes))
  return lambda word: counts.get(word, 0) <= most


def _quote(quote, sentence, rare):
  """A passage as HTML, short, with what the sentence shares with it marked.

  Marked are runs of shared words, from the first telling word of the run to
  its last; the part shown is the one around the first run.
  """
  shared = set(attribution.words(sentence))
  spans = attribution.word_spans(quote)
  runs, run = [], []
  for start, end, word in [*spans, (0, 0, None)]:
    if word in shared:
      run.append((start, end, rare(word)))
      continue
    telling = [k for k, (_, _, is_rare) in enumerate(run) if is_rare]
    if telling:
      runs.append((run[telling[0]][0], run[telling[-1]][1]))
    run = []
  begin, stop = 0, len(quote)
  if stop > _QUOTED:
    first = max(0, runs[0][0] - _QUOTED // 3) if runs else 0
    begin = quote.rfind(' ', 0, min(first, stop - _QUOTED)) + 1
    cut = quote.rfind(' ', begin, begin + _QUOTED)
    stop = stop if begin + _QUOTED >= stop else (
        cut if cut > begin else begin + _QUOTED)
  parts, at = [], begin
  for start, end in runs:
    if start >= at and end <= stop:
      parts += [_escape(quote[at:start]),
                f'<mark>{_escape(quote[start:end])}</mark>']
      at = end
  parts.append(_escape(quote[at:stop]))
  dots = '<span class="rest">…</span>'
  return ((f'{dots} ' if begin else '') + ''.join(parts)
          + (f' {dots}' if stop < len(quote) else ''))


def _footer(settings):
  rows = ''.join(f'<dt>{_escape(str(key))}</dt><dd>{_escape(str(value))}</dd>'
                 for key, value in settings.items() if value is not None)
  return (f'<footer><h2>Settings</h2><dl>{rows}'
          f'<dt>locost_jax</dt><dd>{locost_jax.__version__}</dd></dl></footer>')


def _html(title, body, script=False):
  """A whole page; only its own script may run and nothing is loaded."""
  folder = importlib.resources.files(locost_jax)
  style = (folder / 'source_page.css').read_text('utf-8')
  code = (folder / 'source_page.js').read_text('utf-8') if script else ''
  digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
  policy = (f"default-src 'none'; style-src 'unsafe-inline'; "
            f"script-src 'sha256-{digest}'; base-uri 'none'; "
            f"form-action 'none'")
  return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{_escape(title)}</title>
<style>
{style}</style>
</head>
<body>{body}{f'<script>{code}</script>' if script else ''}
</body>
</html>
"""
