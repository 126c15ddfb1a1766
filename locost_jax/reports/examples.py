"""The best and worst examples of a results page, next to their references."""

from locost_jax.evaluation.metrics import protocols
from locost_jax.reports import contents as contents_lib
from locost_jax.reports import marks
from locost_jax.summarizing.page_html import escape

_SHOWN = 1200  # characters of a document


def render(all_contents, count):
  """Returns the section of examples; '' without predictions.

  Args:
    all_contents: list of `contents.Contents`.
    count: number of best, and of worst, examples of each task.
  """
  parts = []
  for (task, split), runs in contents_lib.tasks(all_contents).items():
    best, worst = contents_lib.choose_examples(
        [scored for _, scored, _ in runs], count
    )
    for heading, ids in ('best', best), ('worst', worst):
      if ids:
        parts.append(f'<h3>{escape(task)}, {escape(split)}: {heading}</h3>')
        parts += [_render_example(name, runs) for name in ids]
  if not parts:
    return ''
  return f"""
<section id="examples"><h2>Best and worst examples</h2>
<p class="note">By mean ROUGE. <mark>Marked</mark>: at least {marks.LEAST} words
in a row that are copied from the document. <span class="expected">
Underlined</span>: words of the reference.</p>{''.join(parts)}</section>"""


def _render_example(name, runs):
  """Returns one document: its references, and the summary of each run."""
  cells, document = [], None
  for one, scored, sources in runs:
    place = contents_lib.ids_of(scored).index(name)
    pair = scored.pairs[place]
    if not cells:
      cells = [
          _cell('reference' if i == 0 else f'reference {i + 1}', escape(text))
          for i, text in enumerate(pair.references)
      ]
    own = sources[name].text() if name in sources else None
    document = document or own
    score = scored.scores[place][protocols.MEAN]
    cells.append(
        _cell(
            f'{one.run.name}: {score:.2f}',
            render_marks(marks.mark(pair.prediction, own, pair.references)),
        )
    )
  return (
      f'<article class="example"><h4><bdi>{escape(name)}</bdi></h4>'
      f'<div class="texts">{"".join(cells)}</div>{_render_document(document)}'
      '</article>'
  )


def _cell(heading, html):
  html = html or '<i>empty</i>'
  return f'<div><h4><bdi>{escape(heading)}</bdi></h4><p><bdi>{html}</bdi></p></div>'


def render_marks(pieces):
  """Returns the HTML of a summary; pieces as in `marks.mark`."""
  html = ''
  for text, is_copied, is_expected in pieces:
    piece = escape(text)
    if is_expected:
      piece = f'<span class="expected">{piece}</span>'
    html += f'<mark>{piece}</mark>' if is_copied else piece
  return html.replace('</mark><mark>', '')


def _render_document(text):
  if not text:
    return ''
  rest = ' …' if len(text) > _SHOWN else ''
  return (
      '<details><summary>the document as the model read it</summary><p><bdi>'
      f'{escape(text[:_SHOWN])}{rest}</bdi></p></details>'
  )
