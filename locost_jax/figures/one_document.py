"""Pictures of one document as a model reads it.

PageSum's figure 3 shows the weight of each page for each word. SimCAS's figure
6 shows the attention of each token of a summary over the document, its figure 8
the similarity of the chunks' start states.
"""

import numpy as np

from locost_jax.errors import InputError
from locost_jax.figures import selection_layers
from locost_jax.figures import style
from locost_jax.models import start_states
from locost_jax.summarizing import attribution
from locost_jax.summarizing import page_weights
from locost_jax.summarizing import selected_tokens
from locost_jax.summarizing import texts

COLUMNS = 240  # of the picture of attention, each a part of the document


def write_summary(summarizer, text, summary=None):
  """Returns the tokens of a summary of a document.

  Args:
    summarizer: the result of `locost_jax.load`, with a vocabulary.
    text: the document, see `summarizing.texts`.
    summary: the summary; None: the model writes one. The papers' figures use
      the reference.

  Returns:
    List of ids, without the start token.

  Raises:
    InputError: the model has no vocabulary.
  """
  if summarizer.vocabulary is None:
    raise InputError('this model has no vocabulary: it cannot read a text')
  if summary is None:
    (summary,) = summarizer.summarize([text])
  return attribution.summary_tokens(summarizer, summary)


def weights_of_pages(summarizer, text, summary=None):
  """Returns the words of a summary and the weight of each page for them.

  Args:
    summarizer, text, summary: see `write_summary`.

  Returns:
    (list of words, float [words, pages]); rows sum to 1.

  Raises:
    InputError: the model weighs no pages.
  """
  tokens = write_summary(summarizer, text, summary)
  source = attribution.attribute(summarizer, text, tokens)
  if source.pages is None:
    raise InputError('this model weighs no pages: expected a PageSum')
  spans, weights = page_weights.word_weights(source.summary, source.pages)
  return [source.summary[start:end] for start, end in spans], weights


def draw_pages(words, weights):
  """Draws the weight of each page for each word (PageSum, figure 3).

  Args:
    words: list of str; if fewer than 60, they label the axis.
    weights: float [words, pages].

  Returns:
    The matplotlib Figure.
  """
  W, P = weights.shape
  if not W:
    raise InputError('the summary has no words: there is nothing to draw')
  figure, axes = style.make_figure(1, 1, min(9, 2 + 0.16 * W), 0.9 + 0.3 * P)
  axis = axes[0, 0]
  image = axis.imshow(
      weights.T,
      vmin=0,
      vmax=1,
      cmap='Blues',
      aspect='auto',
      interpolation='nearest',
  )
  axis.set_yticks(range(P), [f'page {p + 1}' for p in range(P)])
  axis.set_xlabel('words of the summary')
  if W < 60:
    axis.set_xticks(range(W), words, rotation=90, fontsize=7)
    axis.set_xlabel('')
  axis.spines[:].set_visible(True)
  figure.colorbar(image, ax=axis, label='weight', fraction=0.05, pad=0.02)
  return figure


def attention(summarizer, text, summary=None):
  """Returns the attention of each token of a summary over a document.

  The attention is the mean of all heads and layers of the decoder (SimCAS,
  figure 6). Marks, padding and SimCAS's first vector are left out.

  Args:
    summarizer, text, summary: see `write_summary`.

  Returns:
    (list of the tokens' texts, attention float [T, columns], selected float
    [columns] or None). The columns are at most COLUMNS parts of the document
    with equal numbers of tokens; `selected` is the share of a part's tokens
    that the model selected.
  """
  tokens = write_summary(summarizer, text, summary)
  document = texts.text_of(text, summarizer.pages)
  read = summarizer.read(document)
  memory = attribution.read_again(summarizer, read.pages)
  columns, number = selected_tokens.columns(summarizer, read.pages)
  is_own = (columns >= 0) & (columns < number)
  # Segments must not decrease: use one per token, and add them up later.
  ids = np.arange(len(columns))
  cuts = np.cumsum([len(page) for page in read.pages])[:-1]
  mass = attribution.token_mass(
      summarizer, read.pages, np.split(ids, cuts), len(ids), tokens, memory
  )
  found = np.zeros((len(tokens), number))
  np.add.at(found.T, columns[is_own], mass.T[is_own])
  selected = None
  if selected_tokens.selects(summarizer.config):
    chosen = selected_tokens.is_selected(
        summarizer, read.pages, memory['mask'][0]
    )
    kept, all_ = (
        np.bincount(columns[which], minlength=number)[:number]
        for which in (is_own & chosen, is_own)
    )
    selected = kept / np.maximum(all_, 1)
  return (
      [summarizer.vocabulary.decode([token]) for token in tokens],
      found,
      selected,
  )


def draw_attention(tokens, mass, selected=None):
  """Draws the attention of each token over a document (SimCAS, figure 6).

  Args:
    tokens: list of T texts.
    mass: float [T, columns].
    selected: float [columns], drawn below; None: the model selects no tokens.

  Returns:
    The matplotlib Figure.
  """
  T, columns = mass.shape
  from matplotlib.figure import Figure

  figure = Figure(figsize=(7.5, min(9, 2.2 + 0.13 * T)), layout='constrained')
  below = selected is not None
  axes = figure.subplots(
      1 + below,
      1,
      squeeze=False,
      sharex=True,
      height_ratios=[1, 0.16][: 1 + below],
  )[:, 0]
  image = axes[0].imshow(
      np.sqrt(mass),
      cmap='viridis',
      aspect='auto',
      interpolation='nearest',
      extent=(0, 100, T - 0.5, -0.5),
  )
  if T < 60:
    axes[0].set_yticks(range(T), tokens, fontsize=7)
  axes[0].set_ylabel('tokens of the summary')
  bar = figure.colorbar(image, ax=axes[0], fraction=0.04, pad=0.02)
  bar.set_label('attention')
  bar.ax.yaxis.set_major_formatter(lambda x, _: f'{100 * x**2:.2g}%')
  if below:
    edges = np.linspace(0, 100, columns + 1)
    axes[1].stairs(100 * selected, edges, fill=True, color=style.color(4))
    axes[1].set(ylabel='selected', ylim=(0, 100))
    axes[1].yaxis.set_major_formatter(lambda y, _: f'{y:.0f}%')
  axes[-1].set_xlabel('place in the document, % of its tokens')
  return figure


def draw_start_states(summarizer, text):
  """Draws the similarity of the chunks' start states (SimCAS, figure 8).

  The upper row shows their cosines, the lower `start_states.similarities`.

  Args:
    summarizer: the result of `locost_jax.load`.
    text: the document.

  Returns:
    The matplotlib Figure.

  Raises:
    InputError: the model is not a SimCAS.
  """
  if not hasattr(summarizer.config, 'align') or summarizer.pages is None:
    raise InputError('this model has no chunks: expected a SimCAS')
  pages = summarizer.read(text).pages
  longest = max(map(len, pages))
  chunks = np.full((1, len(pages), longest), summarizer.settings.pad_id)
  for row, page in zip(chunks[0], pages):
    row[: len(page)] = page
  states = start_states.after_layers(
      summarizer.model, summarizer.params, chunks
  )[:, 0]
  return selection_layers.draw_similarity(
      np.stack(
          [start_states.cosines(states), start_states.similarities(states)]
      )
  )
