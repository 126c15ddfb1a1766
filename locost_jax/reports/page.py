"""The HTML of a results page: one file without scripts that loads no others.

All text goes through `escape`. Each run has one colour on the whole page.
"""

import importlib.resources

import numpy as np

import locost_jax
from locost_jax.evaluation.metrics import protocols
from locost_jax.reports import charts
from locost_jax.reports import contents as contents_lib
from locost_jax.reports import examples
from locost_jax.summarizing.page_html import escape


def render(all_contents, defaults, count):
  """Returns the page of some runs.

  Args:
    all_contents: list of `contents.Contents`.
    defaults: for each run {key of the config: default}.
    count: number of best, and of worst, examples of each task.

  Returns:
    HTML.
  """
  names = [one.run.name for one in all_contents]
  title = f'Results: {", ".join(names)}'
  body = ''.join(
      (
          _header(all_contents, title),
          _scores(all_contents),
          _curves(all_contents),
          _profiles(all_contents),
          _kernels(all_contents),
          _config(all_contents, defaults),
          examples.render(all_contents, count),
          f'<footer><p class="note">locost_jax {locost_jax.__version__}</p>'
          '</footer>',
      )
  )
  folder = importlib.resources.files(__package__)
  css = (folder / 'report_page.css').read_text('utf-8')
  return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>
{css}</style>
</head>
<body>{body}
</body>
</html>
"""


def _header(all_contents, title):
  facts = ''.join(
      f'<li><bdi>{escape(one.run.name)}</bdi>: '
      f'{escape(one.run.config["model"]["name"])}, best checkpoint of step '
      f'{one.run.step:,} of {one.run.config["train"]["steps"]:,}</li>'
      for one in all_contents
  )
  return f"""
<header><p class="kicker">Scores, curves and examples</p>
<h1><bdi>{escape(title)}</bdi></h1>
<ul class="facts">{facts}</ul></header>"""


def _scores(all_contents):
  """Returns a table of scores for each task, with signatures."""
  parts = ['<section id="scores"><h2>Scores</h2>']
  found = contents_lib.tasks(all_contents)
  if not found:
    parts.append(
        '<p class="note">No predictions yet: main --evaluate writes them.</p>'
    )
  for (task, split), rows in found.items():
    parts.append(_table_of_scores(f'{task}, {split}', rows))
  return ''.join(parts) + '</section>'


def _table_of_scores(heading, rows):
  keys = [key for key in protocols.TITLES if key in rows[0][1].summary]
  best = {key: max(row[1].summary[key] for row in rows) for key in keys}
  head = ''.join(f'<th>{protocols.TITLES[key]}</th>' for key in keys)
  body = ''.join(_row_of_scores(one, scored, best) for one, scored, _ in rows)
  signatures = list(dict.fromkeys(row[1].summary['signature'] for row in rows))
  shown = ''.join(
      f'<p class="note"><code>{escape(s)}</code></p>' for s in signatures
  )
  warning = ''
  if len(signatures) > 1:
    warning = (
        '<p class="warning">Do not compare these scores: they were computed in '
        'different ways or on different numbers of documents.</p>'
    )
  mean_of = ', '.join(
      protocols.TITLES[key] for key in rows[0][1].summary['mean_of']
  )
  return (
      f'<h3>{escape(heading)}</h3>{warning}<div class="wide">'
      f'<table class="scores"><tr><th>run</th>{head}</tr>{body}</table></div>'
      '<p class="note">F1 x 100 with 95% intervals over documents. Mean: of '
      f'{mean_of}. The signature says how they were computed.</p>{shown}'
  )


def _row_of_scores(one, scored, best):
  cells = ''
  for key in best:
    value = scored.summary[key]
    low, high = scored.summary['intervals'][key]
    is_best = ' class="best"' if value == best[key] else ''
    cells += (
        f'<td><span{is_best}>{value:.2f}</span>'
        f'<small>{low:.2f} to {high:.2f}</small></td>'
    )
  return f'<tr><td><bdi>{escape(one.run.name)}</bdi></td>{cells}</tr>'


def _figure(chart, caption, note=''):
  """Returns a chart with its caption above and a note below; '' without one."""
  if not chart:
    return ''
  note = f'<figcaption>{note}</figcaption>' if note else ''
  return f'<figure><h3>{escape(caption)}</h3>{chart}{note}</figure>'


def _section(name, heading, note, figures, all_contents):
  """Returns a section of charts; '' without any."""
  figures = ''.join(figures)
  if not figures:
    return ''
  legend = charts.legend([one.run.name for one in all_contents])
  return (
      f'<section id="{name}"><h2>{heading}</h2><p class="note">{note}</p>'
      f'{legend}<div class="charts">{figures}</div></section>'
  )


def _curves(all_contents):
  keys = sorted({key for one in all_contents for key in one.curves})
  keys.sort(key=lambda key: not key.startswith('train/'))
  figures = []
  for key in keys:
    lines = [
        charts.Line(one.run.name, *charts.thin(*one.curves[key]), color)
        for color, one in enumerate(all_contents)
        if key in one.curves
    ]
    few = all(len(line.x) <= 40 for line in lines)
    figures.append(
        _figure(charts.draw_lines(lines, 'step', key, dots=few), key)
    )
  note = 'Long curves are means of neighbouring points.'
  return _section('curves', 'Curves', note, figures, all_contents)


def _profiles(all_contents):
  figures = []
  for (task, split), rows in contents_lib.tasks(all_contents).items():
    lines = []
    for one, scored, sources in rows:
      found = contents_lib.profile(scored, sources)
      if found is not None:
        lines.append(
            charts.Line(
                one.run.name,
                found.lengths,
                found.means,
                all_contents.index(one),
                found.low,
                found.high,
            )
        )
    chart = charts.draw_lines(
        lines, 'tokens read of the document', 'ROUGE', x_log=True, dots=True
    )
    figures.append(_figure(chart, f'{task}, {split}'))
  note = (
      'Mean ROUGE of documents of similar length, with 95% intervals. All points '
      'of a line have about the same number of documents.'
  )
  return _section(
      'lengths', 'Score by input length', note, figures, all_contents
  )


def _kernels(all_contents):
  """Returns the section about kernels, for the runs that have them."""
  figures, lines = [], []
  for color, one in enumerate(all_contents):
    if one.context is None:
      continue
    ranges, decays = one.context
    flat = ranges.reshape(len(ranges), -1)
    layers = list(range(1, len(flat) + 1))
    first, median, third = np.quantile(flat, (0.25, 0.5, 0.75), axis=1)
    lines.append(
        charts.Line(
            one.run.name,
            layers,
            median.tolist(),
            color,
            first.tolist(),
            third.tolist(),
        )
    )
    figures.append(_decay(one.run.name, decays))
  chart = charts.draw_lines(lines, 'layer', 'tokens', y_log=True, dots=True)
  note = 'Median and quartiles over all channels.'
  figures.insert(0, _figure(chart, 'effective context, tokens', note))
  note = (
      'How far the encoder’s channels look. Effective context: the distance '
      'within which a kernel has 95% of its weight |K|. Decay: the mean of |K| '
      'over channels by distance, scaled to a maximum of 1.'
  )
  return _section('kernels', 'Kernels', note, figures, all_contents)


def _decay(name, decays):
  """Returns the chart of a run's decay in at most COLORS layers."""
  count = min(charts.COLORS, len(decays))
  shown = np.linspace(0, len(decays) - 1, count).round().astype(int).tolist()
  names = [f'layer {layer + 1}' for layer in shown]
  chart = charts.draw_lines(
      [
          charts.Line(label, *decays[layer], color)
          for color, (layer, label) in enumerate(zip(shown, names))
      ],
      'distance in tokens',
      'mean |K|',
      x_log=True,
  )
  return _figure(chart + charts.legend(names), f'{name}: decay by distance')


def _config(all_contents, defaults):
  """Returns the table of keys that differ from the default config."""
  rows = contents_lib.differences(all_contents, defaults)
  head = ''.join(
      f'<th><bdi>{escape(one.run.name)}</bdi></th>' for one in all_contents
  )
  body = ''.join(
      f'<tr><td>{escape(key).replace(".", ".<wbr>")}</td>'
      + ''.join(f'<td>{_show(value)}</td>' for value in values)
      + f'<td class="same">{_show(default)}</td></tr>'
      for key, default, values in rows
  )
  return f"""
<section id="config"><h2>Config</h2>
<p class="note">The {len(rows)} keys that differ from configs/default.py.</p>
<div class="wide"><table class="config"><tr><th>key</th>{head}<th>default</th>
</tr>{body}</table></div></section>"""


def _show(value):
  """Returns a value of a config as HTML."""
  return escape(f'{value:g}' if isinstance(value, float) else str(value))
