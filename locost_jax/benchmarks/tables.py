"""What a benchmark prints and draws.

A column is (title, path in a row, unit). The unit says how a number is written
and where it is drawn: 's' in the picture of times, 'B' in that of memory. Below
the columns of times stands how they grow.
"""

from locost_jax.benchmarks import measure

LAYER = 'One encoder layer'
LENGTH = ('length', 'length', 'n')
# Time per token is compared with that at this length, or with the shortest.
BASE_LENGTH = 16384

# command -> ((heading, columns), ...)
TABLES = {
    'kernel': (('Kernels of one layer, both directions', (
        LENGTH,
        ('two-level', 'seconds.two-level', 's'),
        ('materialised', 'seconds.materialised', 's'),
        ('ratio', 'ratio', 'x'),
        ('on channels', 'channels', 'n'),
        ('difference', 'difference', 'e'),
        ('temporary', 'temp_bytes', 'B'),
        ('H x N x L', 'materialised_bytes', 'B'))),),
    'encode': ((LAYER, (
        LENGTH,
        ('kernels made', 'seconds.kernels made', 's'),
        ('kernels given', 'seconds.kernels given', 's'),
        ('products alone', 'seconds.products alone', 's'),
        ('speed of products', 'of_products', '%'),
        ('us/token', 'us_per_token.kernels made', 'f'),
        ('temporary', 'temp_bytes', 'B'),
        ('/ L D 4', 'temp_LD4', 'f'),
        ('given / L D 4', 'temp_LD4_given', 'f'),
        ('unblocked / L D 4', 'temp_LD4_unblocked', 'f'),
        ('difference', 'difference', 'e'))),),
    'decode': (('Writing after reading', (
        LENGTH,
        ('encode', 'seconds.encode', 's'),
        ('cache', 'seconds.cache {}', 's'),
        ('to first token', 'first_token.{}', 's'),
        ('step', 'seconds.step {}', 's'),
        ('input cache', 'cache_bytes.{}', 'B'))),),
    'train': (('A train step', (
        LENGTH,
        ('target', 'target_tokens', 'n'),
        ('forward', 'seconds.forward', 's'),
        ('step, none', 'seconds.step none', 's'),
        ('pieces', 'seconds.step pieces', 's'),
        ('full', 'seconds.step full', 's'),
        ('tokens/s', 'tokens_per_second', 'n'),
        ('temporary, none', 'temp_bytes.none', 'B'),
        ('in pieces', 'temp_bytes.pieces', 'B'),
        ('in full', 'temp_bytes.full', 'B'),
        ('peak', 'peak', 'B'))),
              ('One encoder layer, forward and backward', (
        LENGTH,
        ('plain', 'seconds.plain layer', 's'),
        ('layer', 'seconds.layer', 's'),
        ('in pieces', 'seconds.layer in pieces', 's'),
        ('in pieces / plain', 'layer_ratio', 'x'),
        ('temporary / L D 4, plain', 'layer_LD4.plain layer', 'f'),
        ('layer', 'layer_LD4.layer', 'f'),
        ('in pieces', 'layer_LD4.layer in pieces', 'f')))),
    'run': (('A run that saves every few steps, and goes on', (
        LENGTH,
        ('target', 'target_tokens', 'n'),
        ('step', 'seconds.step', 's'),
        ('step that saves', 'seconds.saving', 's'),
        ('ratio', 'saving_ratio', 'x'),
        ('beside writing', 'seconds.beside', 's'),
        ('on disk after', 'seconds.writing', 's'),
        ('on disk', 'state_bytes', 'B'),
        ('waits for data', 'data_wait', '%'),
        ('ready again after', 'seconds.ready', 's'),
        ('peak', 'peak', 'B'))),),
    'cost': (('A document, read and summarised', (
        LENGTH,
        ('written', 'tokens', 'n'),
        ('per document', 'seconds_per_book', 's'),
        ('joules', 'joules', 'n'),
        ('money', 'money', 'g'),
        ('grams CO2', 'grams_co2', 'f'),
        ('peak', 'peak', 'B'))),),
    'gsg': (('Gap sentences, per document', (
        ('words', 'length', 'n'),
        ('choose', 'seconds.choose', 's'),
        ('sequential', 'seconds.choose, sequential', 's'),
        ('rouge_score', 'seconds.loop', 's'),
        ('ratio', 'ratio', 'x'),
        ('make', 'seconds.make', 's'),
        ('make and tokenise', 'seconds.make and tokenise', 's'),
        ('documents/s', 'documents_per_second', 'n'),
        ('cores for 256/s', 'cores', 'f'))),),
}
# command -> (heading, columns): models beside each other.
CONTESTS = {
    'encode': ('The whole encoder', (
        LENGTH, ('encoder', 'seconds', 's'),
        ('tokens/s', 'tokens_per_second', 'n'),
        ('time / ours, made', 'ratio_made', 'x'),
        ('time / ours, kept', 'ratio_kept', 'x'),
        ('peak of process', 'peak', 'B'),
        ('our peak / its', 'peak_ratio', 'x'))),
    'train': ('A train step', (
        LENGTH, ('step', 'seconds', 's'),
        ('samples/s', 'samples_per_second', 'g'),
        ('time / ours', 'ratio', 'x'), ('peak of process', 'peak', 'B'),
        ('our peak / its', 'peak_ratio', 'x'))),
}
LONGEST = (
    ('model', 'subject', 't'), ('longest input', 'length', 'n'),
    ('peak of process', 'peak_bytes', 'B'), ('did not fit', 'ended_at', 'n'))


def tables(result):
  """Yields (heading, columns, rows) of a result."""
  for heading, columns in TABLES[result['command']]:
    if result['command'] == 'decode':
      yield from _decode_tables(heading, columns, result['rows'])
    else:
      yield heading, columns, result['rows']
  if result.get('contest'):
    heading, columns = CONTESTS[result['command']]
    for name in dict.fromkeys(row['subject'] for row in result['contest']):
      yield f'{heading}: {name}', columns, [
          row for row in result['contest'] if row['subject'] == name]
  if result.get('longest'):
    yield 'Longest input within the memory limit', LONGEST, result['longest']


def _decode_tables(heading, columns, rows):
  """One table for each form of the input's cache."""
  forms = dict.fromkeys(form for row in rows
                        for form in row.get('cache_bytes', ()))
  for form in forms or ('-',):
    yield f'{heading}: {form}', tuple(
        (title, path.format(form), unit) for title, path, unit in columns), rows


def text(result):
  """All tables of a result, and what has to be said besides."""
  parts = [table(heading, columns, rows)
           for heading, columns, rows in tables(result)]
  return '\n\n'.join(parts + ['\n'.join(notes(result))]).rstrip() + '\n'


def notes(result):
  """What the numbers alone do not say, in lines."""
  for row in result['rows']:
    if row.get('memory_ended'):
      yield (f"{row['length']} tokens: memory ended at "
             f"{write(row['peak_bytes'], 'B')}")
    if row.get('same_tokens') is not None:
      yield (f"{row['length']} tokens: the caches give "
             f"{'the same' if row['same_tokens'] else 'DIFFERENT'} tokens")
  sources = {row['energy_source'] for row in result['rows']
             if row.get('energy_source')}
  for source in sorted(sources):
    yield f'energy: {source}'
  settings = result['settings']
  if result['command'] == 'cost' and settings['prices']['per_kwh'] and any(
      row.get('joules') is None for row in result['rows']):
    yield 'money: without energy'
  if result['command'] == 'gsg':
    for row in result['rows']:
      if not row.get('same', True):
        yield f"{row['length']} words: rouge_score chooses OTHER sentences"
    yield f"one thread, medians of up to {settings['repeats']}"
    return
  yield (f"{result['device']}, {result['machine']['cores']} cores, "
         f"{settings['dtype']}, batch {settings['batch_size']}, medians of up "
         f"to {settings['repeats']}")


def table(heading, columns, rows):
  """A heading, a line of titles, and a line per row; numbers to the right."""
  lines = [[title for title, _, _ in columns]]
  for row in rows:
    lines.append([write(look_up(row, path), unit) for _, path, unit in columns])
    if row.get('memory_ended'):
      lines[-1][-1] = f"memory ended at {write(row['peak_bytes'], 'B')}"
  growth = _growth_lines(columns, rows)
  lines += growth
  widths = [max(map(len, column)) for column in zip(*lines)]
  written = ['  '.join(
      cell.ljust(width) if unit == 't' else cell.rjust(width)
      for cell, width, (_, _, unit) in zip(line, widths, columns)).rstrip()
             for line in lines]
  rule = '─' * (sum(widths) + 2 * len(widths) - 2)
  written.insert(1, rule)
  if growth:
    written.insert(-len(growth), '┄' * len(rule))
  return '\n'.join([heading, *written])


def _growth_lines(columns, rows):
  """Exponents of the times, and time per token at the longest over a base."""
  grown = {path: grow(rows, path) for _, path, unit in columns if unit == 's'}
  if not any(grown.values()):
    return []
  longest = max(row['length'] for row in rows)
  base = next(found['base'] for found in grown.values() if found)
  first, second = [], []
  for title, path, unit in columns:
    found = grown.get(path)
    first.append(f"{found['exponent']:.3f}" if found else '')
    second.append(f"{found['per_token']:.3f}x" if found else '')
    if path == 'length':
      first[-1] = 'time ~ length^'
      what = 'word' if title == 'words' else 'token'
      second[-1] = f'per {what}, {longest} / {base}'
  return [first, second]


def grow(rows, path):
  """How a time grows: dict(exponent, per_token, base), or None.

  per_token: time per token at the longest input over that at `base`.
  """
  points = sorted((row['length'], look_up(row, path)) for row in rows
                  if look_up(row, path))
  exponent = measure.fit_exponent(*zip(*points)) if points else None
  if exponent is None:
    return None
  lengths = [length for length, _ in points]
  base = BASE_LENGTH if BASE_LENGTH in lengths else lengths[0]
  (longest, last), per_base = points[-1], dict(points)[base] / base
  return dict(exponent=exponent, per_token=last / longest / per_base, base=base)


def look_up(row, path):
  """row['a']['b'] for 'a.b', None where there is none; names may hold dots."""
  if path == 'peak':  # the device's memory where there is one
    return row.get('device_peak_bytes') or row.get('peak_bytes')
  key, _, rest = path.partition('.')
  value = row.get(key)
  return value.get(rest) if rest and value is not None else value


def write(value, unit):
  """A value with its unit, three digits or so; '-' for None."""
  if value is None:
    return '-'
  if unit == 't':
    return value
  if unit == 's':
    for size, name in ((60.0, 's'), (1.0, 's'), (1e-3, 'ms'), (1e-6, 'us')):
      if value >= 0.9995 * size:  # what three digits round up to it
        return (f'{value:.0f} s' if size == 60 else
                f'{value / size:#.3g} {name}'.replace('. ', ' '))
    return f'{value * 1e9:.0f} ns'
  if unit == 'B':
    for size, name in ((1 << 30, 'GiB'), (1 << 20, 'MiB'), (1 << 10, 'KiB')):
      if value >= size:
        return f'{value / size:.4g} {name}' if value < 1000 * size else (
            f'{value / size:.0f} {name}')
    return f'{value} B'
  if unit == 'n':
    return f'{value:.0f}'
  if unit == 'g':
    return f'{value:.3g}'
  if unit == '%':
    return f'{100 * value:.3g}%'
  return {'x': '{:.2f}x', 'f': '{:.2f}', 'e': '{:.1e}'}[unit].format(value)


def write_length(value):
  """16384 -> '16K', 2 -> '2'."""
  return f'{value / 1024:g}K' if value >= 1024 else f'{value:g}'


def draw(result, path):
  """Draws times and memory against length, logarithmic, into a PNG.

  What a subject has on the left and on the right has the same colour.

  Raises:
    ImportError: matplotlib is not installed.
  """
  from matplotlib.figure import Figure  # no window system is asked for
  figure = Figure(figsize=(11, 6), layout='constrained')
  axes = dict(zip('sB', figure.subplots(1, 2)))
  unit_of_length = 'words' if result['command'] == 'gsg' else 'tokens'
  colors = {}
  for heading, columns, rows in tables(result):
    if heading.startswith('Longest'):
      continue
    several = heading.partition(': ')[2] or (
        'one layer' if heading == LAYER else '')
    drawn = dict.fromkeys(axes, 0)
    for title, place, unit in columns:
      points = [(row['length'], look_up(row, place)) for row in rows
                if unit in axes and look_up(row, place)]
      if points:
        label = ', '.join(filter(None, (several, title)))
        color = colors.setdefault((heading, drawn[unit]), f'C{len(colors)}')
        drawn[unit] += 1
        axes[unit].plot(*zip(*points), marker='o', markersize=4, label=label,
                        color=color)
      for row in rows if unit == 'B' else ():
        if row.get('memory_ended'):
          axes[unit].plot(row['length'], row['peak_bytes'], 'kx', markersize=9)
  for unit, label, scale in (('s', 'seconds', 10), ('B', 'bytes', 2)):
    axis = axes[unit]
    axis.set(xlabel=f'length ({unit_of_length})', ylabel=label)
    axis.set_xscale('log', base=2)
    axis.set_yscale('log', base=scale)
    axis.xaxis.set_major_formatter(lambda x, _: write_length(x))
    if label == 'bytes':
      axis.yaxis.set_major_formatter(lambda y, _: write(int(y), 'B'))
    axis.grid(True, which='major', alpha=0.3)
    if axis.lines:  # below the lines, not over them
      axis.legend(fontsize='small', frameon=False, ncols=2, loc='upper center',
                  bbox_to_anchor=(0.5, -0.12))
  figure.suptitle(f"bench {result['command']}: {result['device']}, "
                  f"{result['settings']['dtype']}")
  figure.savefig(path, dpi=150)
