"""The summaries of a document's parts, as HTML: see `hierarchical`."""

from locost_jax.summarizing.page_html import escape


def render(parts, places):
  """Returns the section of a source page with the summary of each part.

  Args:
    parts: list of `hierarchical_attribution.PartSummary`.
    places: for each part where it stands, or ''.
  """
  items = ''.join(map(_render_part, parts, places))
  return f"""\
<section class="parts" id="parts"><h2>Part by part</h2>
<details><summary>The summaries of {len(parts):,} parts of the document, from
which the summary was written</summary>
<ol>{items}</ol></details></section>"""


def _render_part(part, place):
  """Returns the summary of a part, linked to its passages."""
  first, last = part.passages
  name = f'¶ {first + 1}' + (f' to {last + 1}' if last > first else '')
  place = place and f'<span class="place">{escape(place)}</span>'
  return (
      f'<li><div class="where"><a href="#p{first + 1}">{name}</a>{place}</div>'
      f'<p>{escape(part.text) or "The model wrote nothing."}</p></li>'
  )
