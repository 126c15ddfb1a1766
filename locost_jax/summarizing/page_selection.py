"""The tokens that the decoder read, as HTML: see `selected_tokens`."""

from locost_jax.summarizing.page_html import escape
from locost_jax.summarizing.page_html import format_share

_HEIGHT, _GAP = 20, 6  # of a chart, and between the two


def render(selection, quotes):
  """Returns the section of a source page that shows what was selected.

  Args:
    selection: a `selected_tokens.Selection`.
    quotes: texts of the passages.
  """
  return f"""\
<section class="selection" id="selection"><h2>What the decoder read</h2>
<p class="note">The encoder read all of the document. Of its
{selection.total:,} tokens <b>{selection.selected:,}</b>
({_share_of_all(selection)}) were selected; the decoder saw no others while it
wrote. {_render_rest(selection)}<a href="#document">The document</a> below shows
the selected tokens highlighted.</p>
<figure class="charts"><div class="rows"><span>attention</span>
<span>selected</span></div><div>{render_charts(selection, quotes)}
<div class="ends"><span>beginning of the document</span><span>end</span></div>
</div><figcaption>The document from left to right,
{_tokens_of_a_column(selection)}. Above: the part of the summary’s attention on
them, up to {format_share(max(selection.mass, default=0))}; below: the share of
them that was selected, up to 100&#8201;%.</figcaption></figure></section>"""


def _render_rest(selection):
  """Returns a sentence on the attention outside the text's tokens."""
  rest = f'<b>{format_share(selection.marks)}</b> on marks and padding'
  if selection.front is None:
    return f'Of its attention {rest} is not shown here. '
  return (
      'Of its attention '
      f'<b>{format_share(selection.front)}</b> fell on one vector of the whole '
      f'document, the mean of the chunks’ start states, and {rest}, which can '
      'be selected too; neither is shown here. '
  )


def fact(selection):
  """Returns the number of selected tokens, for the head of the page."""
  return (
      f'{selection.selected:,} of {selection.total:,} tokens selected '
      f'({_share_of_all(selection)})'
  )


def render_charts(selection, quotes):
  """Returns both charts as SVG, a link in each column.

  Args:
    selection, quotes: see `render`.
  """
  most = max(selection.mass, default=0) or 1
  bottom = 2 * _HEIGHT + _GAP
  cells = ''.join(
      f'<a href="#p{p + 1}" tabindex="-1"><title>¶ {p + 1}: '
      f'{format_share(share)} selected, {format_share(mass)} of the attention. '
      f'{escape(quotes[p][:90])}</title>'
      f'<path class="all" d="{_bar(i, bottom, bottom)}"/>'
      f'<path class="mass" d="{_bar(i, _HEIGHT, _HEIGHT * mass / most)}"/>'
      f'<path class="share" d="{_bar(i, bottom, _HEIGHT * share)}"/></a>'
      for i, (p, share, mass) in enumerate(
          zip(selection.passages, selection.columns, selection.mass)
      )
  )
  return (
      f'<svg viewBox="0 0 {len(selection.columns)} {bottom}" role="img" '
      'preserveAspectRatio="none" aria-label="Attention, and the share of '
      f'selected tokens, over the document">{cells}</svg>'
  )


def render_switch():
  """Returns the checkbox that shows or hides the selected tokens."""
  return (
      '<input type="checkbox" id="show-selected" checked>'
      '<label for="show-selected">Show <mark>selected tokens</mark>: what the '
      'decoder read</label>'
  )


def _bar(x, bottom, height):
  return f'M{x} {bottom}v-{height:.2f}h1V{bottom}z'


def _share_of_all(selection):
  return format_share(selection.selected / max(1, selection.total))


def _tokens_of_a_column(selection):
  tokens = selection.total / max(1, len(selection.columns))
  if tokens < 1.5:
    return 'a token in each column'
  return f'about {tokens:,.0f} tokens in each column'
