"""Renders the page of the document that each summary word came from, as HTML.

PageSum's decoder weighs the pages for every token (its equation 9). The section
shows the summary with the page of highest weight for each word, and the weights
of all pages for all words (its figure 3).
"""

import numpy as np

from locost_jax.summarizing import summary_words
from locost_jax.summarizing.page_html import escape
from locost_jax.summarizing.page_html import format_share

_TOP = 3  # pages named for a sentence


def word_weights(summary, pages):
  """Finds the words of a summary and how much each page counted for them.

  Args:
    pages: `attribution.PageWeights`.

  Returns:
    (list of (start, end), float [words, pages]): the mean over the tokens that
    end in a word. A word without a token has the weights of the word before.
  """
  spans, owner = summary_words.find(summary, pages.ends)
  found = np.zeros((len(spans), pages.weights.shape[1]))
  for i in range(len(spans)):
    own = pages.weights[owner == i]
    if len(own):
      found[i] = own.mean(0)
    elif i:
      found[i] = found[i - 1]
  return spans, found


def render(summary, pages):
  """Returns the section of a source page, see the top of this module.

  Args:
    pages: `attribution.PageWeights`.
  """
  spans, weights = word_weights(summary, pages)
  if not spans:
    return ''
  words = [summary[start:end] for start, end in spans]
  mean = pages.weights.mean(0)
  shares = ', '.join(
      f'<a href="#page{p + 1}">page {p + 1}</a> {format_share(share)}'
      for p, share in enumerate(mean)
  )
  return f"""\
<section class="pages" id="pages"><h2>Which page each word came from</h2>
<p class="note">The decoder writes with every page by itself and weighs them
anew for each word. The number behind words is the page that counted most for
them; over the whole summary: {shares}.</p>
<p class="spoken">{_render_words(words, weights)}</p>
<figure>{heat_map(words, weights)}<figcaption>The weight of each page (rows) for
each word of the summary (from left to right); darker is more.</figcaption>
</figure></section>"""


def _render_words(words, weights):
  """Returns the words, with the page number after each run of one page."""
  best = weights.argmax(1)
  parts = []
  for i, (word, p) in enumerate(zip(words, best)):
    parts.append(
        f'<span style="--hue:{_hue(p, weights.shape[1])}" '
        f'title="{_describe(weights[i])}">{escape(word)}</span>'
    )
    if i + 1 == len(words) or best[i + 1] != p:
      parts.append(f'<a href="#page{p + 1}"><sup>{p + 1}</sup></a>')
    parts.append(' ')
  return ''.join(parts)


def heat_map(words, weights):
  """Returns the weights as SVG: a row per page, a column per word.

  Args:
    weights: float [words, pages].
  """
  W, P = weights.shape
  cells = ''.join(
      f'<rect x="{i}" y="{p}" width="1" height="1" '
      f'fill-opacity="{weights[i, p]:.3f}"><title>page {p + 1}, '
      f'“{escape(words[i])}”: {format_share(weights[i, p])}</title></rect>'
      for p in range(P)
      for i in range(W)
  )
  labels = ''.join(f'<span>{p + 1}</span>' for p in range(P))
  return (
      f'<div class="heat"><div class="rows">{labels}</div>'
      f'<svg viewBox="0 0 {W} {P}" preserveAspectRatio="none" role="img" '
      f'style="height:{1.4 * P:.1f}em" aria-label="Weights of the pages over '
      f'the words of the summary">{cells}</svg></div>'
  )


def render_sentence(weights):
  """Returns the pages that counted most for a sentence.

  Args:
    weights: [T, pages], of its tokens.
  """
  if not len(weights):
    return ''
  mean = weights.mean(0)
  best = np.argsort(-mean, kind='stable')[:_TOP]
  shown = ', '.join(
      f'<a href="#page{p + 1}">page {p + 1}</a> <b>{format_share(mean[p])}</b>'
      for p in best
  )
  return f'<p class="from">Weight of the pages: {shown}</p>'


def _describe(weights):
  best = np.argsort(-weights, kind='stable')[:_TOP]
  return ', '.join(f'page {p + 1}: {format_share(weights[p])}' for p in best)


def _hue(page, pages):
  return round(360 * page / max(pages, 1))
