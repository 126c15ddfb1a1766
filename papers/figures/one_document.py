"""Pictures of one document as a model reads it (PageSum 3, SimCAS 6)."""

import numpy as np

import locost_jax
from locost_jax.attribution import attribution
from locost_jax.attribution import selected_tokens
from locost_jax.attribution import words as words_lib
from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import metric
from locost_jax.summarizing import document_files
from locost_jax.summarizing import documents
from locost_jax.summarizing import token_places
from papers.figures import style

COLUMNS = 240  # of the picture of attention, each a part of the document
_CELLS = dict(aspect='auto', interpolation='nearest')


def load(workdir, document, summary=None, *, row=0, reference_field=None):
  """Returns (summarizer, text of the document, text of the summary or None).

  Args:
    workdir: also any other directory of a model.
    document: a file.
    summary: a file with its summary.
    row: of the document, from 1, in a file of several; 0: it has only one.
    reference_field: of a row: its summary.
  """
  found = _read_one(document, row, reference_field)
  text = found.text if found.as_read is None else found.as_read
  references = [x for _, own in found.references for x in metric.as_list(own)]
  written = references[0] if references else None
  if summary is not None:
    written = _read_one(summary).text
  return locost_jax.load(workdir), text, written


def _read_one(path, row=0, reference_field=None):
  """Returns a Document of a file; without a row it must have exactly one."""
  problems = []
  fields = documents.Fields(reference=reference_field)
  found, _ = document_files.read_all(
      [path], fields=fields, report=problems.append
  )
  if problems:
    raise InputError(problems[0].removeprefix('error: '))
  if row > len(found) or not row and len(found) != 1:
    expected = f'--row={row}' if row else 'one, or --row=N'
    raise InputError(
        f'{path}: has {len(found):,} documents; expected {expected}'
    )
  return found[row - 1 if row else 0]


def write_summary(summarizer, text, summary=None):
  """Returns the tokens of a summary, without the start token.

  If `summary` is None, the model writes one. The papers use the reference.
  """
  if summarizer.vocabulary is None:
    raise InputError('this model has no vocabulary: it cannot read a text')
  if summary is None:
    (summary,) = summarizer.summarize([text])
  return token_places.summary_tokens(summarizer, summary)


def weights_of_pages(summarizer, text, summary=None):
  """Returns the words of a summary and weights [words, pages]; rows sum to 1."""
  tokens = write_summary(summarizer, text, summary)
  source = attribution.attribute(summarizer, text, tokens)
  if source.pages is None:
    raise InputError('this model weighs no pages: expected a PageSum')
  spans, weights = words_lib.page_weights(source.summary, source.pages)
  if not spans:
    raise InputError('the summary has no words: there is nothing to draw')
  return [source.summary[start:end] for start, end in spans], weights


def draw_pages(workdir, document, summary=None, *, row=0, reference_field=None):
  """The weight of each page for each word (PageSum 3)."""
  of_row = dict(row=row, reference_field=reference_field)
  words, weights = weights_of_pages(*load(workdir, document, summary, **of_row))
  W, P = weights.shape
  size = min(9, 2 + 0.16 * W), 0.9 + 0.3 * P
  figure, ((axis,),) = style.make_figure(1, 1, *size)
  image = axis.imshow(weights.T, vmin=0, vmax=1, cmap='Blues', **_CELLS)
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

  The attention is the mean of all heads and layers of the decoder. Marks,
  padding and SimCAS's first vector are left out.

  Returns:
    (list of the tokens' texts, attention float [T, columns], selected float
    [columns] or None). The columns are at most COLUMNS parts of the document
    with equal numbers of tokens; `selected` is the share of a part's tokens
    that the model selected.
  """
  tokens = write_summary(summarizer, text, summary)
  read = summarizer.read(documents.text_of(text, summarizer.pages))
  memory = summarizer.memory_of(read.pages)
  columns, number = selected_tokens.columns(summarizer, read.pages)
  mass = attribution.passage_mass(
      summarizer, memory, columns, number + 1, tokens
  )
  selected = None
  if summarizer.config.select != 'none':
    mask, columns = memory['mask'][0], np.concatenate(columns)
    is_own = (columns >= 0) & (columns < number)
    chosen = selected_tokens.is_selected(summarizer, read.pages, mask)
    count = lambda which: np.bincount(columns[which], minlength=number)
    selected = count(is_own & chosen) / np.maximum(count(is_own), 1)
  decode = summarizer.vocabulary.decode
  return [decode([token]) for token in tokens], mass[:, :number], selected


def draw_attention(
    workdir, document, summary=None, *, row=0, reference_field=None
):
  """Attention over the document, and the selected tokens (SimCAS 6)."""
  of_row = dict(row=row, reference_field=reference_field)
  found = attention(*load(workdir, document, summary, **of_row))
  tokens, mass, selected = found
  T, columns = mass.shape
  below = selected is not None
  rows, height = 1 + below, min(9, 2.2 + 0.13 * T)
  shared = dict(sharex=True, height_ratios=[1, 0.16][:rows])
  height = (height - 0.4) / rows
  figure, axes = style.make_figure(rows, 1, 6.5, height, **shared)
  axes, extent = axes[:, 0], (0, 100, T - 0.5, -0.5)
  look = dict(cmap='viridis', extent=extent, **_CELLS)
  image = axes[0].imshow(np.sqrt(mass), **look)
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
