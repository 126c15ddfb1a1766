"""The tables of each command: the columns and the numbers they show.

A column is (title, path in a row, unit). The unit gives the format of a number
(see `units`). Columns with 's' are plotted as times, those with 'B' as memory.
"""

from locost_jax.benchmarks import growth

LAYER = 'One encoder layer'
LENGTH = ('length', 'length', 'n')

# command -> ((heading, columns), ...)
TABLES = {
    'kernel': (
        (
            'Kernels of one layer, both directions',
            (
                LENGTH,
                ('two-level', 'seconds.two-level', 's'),
                ('materialised', 'seconds.materialised', 's'),
                ('ratio', 'ratio', 'x'),
                ('on channels', 'channels', 'n'),
                ('difference', 'difference', 'e'),
                ('temporary', 'temp_bytes', 'B'),
                ('H x N x L', 'materialised_bytes', 'B'),
            ),
        ),
    ),
    'encode': (
        (
            LAYER,
            (
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
                ('difference', 'difference', 'e'),
            ),
        ),
    ),
    'decode': (
        (
            'Writing after reading',
            (
                LENGTH,
                ('encode', 'seconds.encode', 's'),
                ('cache', 'seconds.cache {}', 's'),
                ('to first token', 'first_token.{}', 's'),
                ('step', 'seconds.step {}', 's'),
                ('input cache', 'cache_bytes.{}', 'B'),
            ),
        ),
    ),
    'generate': (
        (
            'The whole model: read and write',
            (
                LENGTH,
                ('written', 'tokens', 'n'),
                ('whole', 'seconds.whole', 's'),
                ('samples/s', 'samples_per_second', 'g'),
                ('temporary', 'temp_bytes', 'B'),
                ('peak', 'peak', 'B'),
            ),
        ),
    ),
    'pages': (
        (
            'Pages: read, and written from',
            (
                LENGTH,
                ('pages', 'pages', 'n'),
                ('encode', 'seconds.encode', 's'),
                ('temporary', 'temp_bytes', 'B'),
                ('step', 'seconds.pages', 's'),
                ('step, rows alone', 'seconds.rows', 's'),
                ('ratio', 'to_rows', 'x'),
                ('step, global', 'seconds.global', 's'),
                ('ratio', 'to_global', 'x'),
                ('caches', 'cache_bytes.pages', 'B'),
            ),
        ),
    ),
    'select': (
        (
            'The selector: read, and written from',
            (
                LENGTH,
                ('selected', 'selected', 'n'),
                ('slots', 'slots', 'n'),
                ('encode', 'seconds.encode', 's'),
                ('encode, all', 'seconds.encode all', 's'),
                ('select', 'seconds.select', 's'),
                ('of encode', 'share_of_encode', '%'),
                ('compact', 'seconds.compact', 's'),
                ('write', 'seconds.write', 's'),
                ('write, all', 'seconds.write all', 's'),
                ('of all', 'share_of_all', '%'),
                ('temporary', 'temp_bytes', 'B'),
                ('temporary, all', 'temp_bytes_all', 'B'),
                ('peak', 'peak', 'B'),
            ),
        ),
    ),
    'turn': (
        (
            'A train step with and without a turn of the selector',
            (
                LENGTH,
                ('target', 'target_tokens', 'n'),
                ('step', 'seconds.step', 's'),
                ('with turn', 'seconds.step with turn', 's'),
                ('turn / step', 'turn_in_steps', 'x'),
                ('every', 'every', 'n'),
                ('share', 'share', '%'),
                ('temporary', 'temp_bytes.step with turn', 'B'),
                ('peak', 'peak', 'B'),
            ),
        ),
    ),
    'train': (
        (
            'A train step',
            (
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
                ('peak', 'peak', 'B'),
            ),
        ),
        (
            'One encoder layer, forward and backward',
            (
                LENGTH,
                ('plain', 'seconds.plain layer', 's'),
                ('layer', 'seconds.layer', 's'),
                ('in pieces', 'seconds.layer in pieces', 's'),
                ('in pieces / plain', 'layer_ratio', 'x'),
                ('temporary / L D 4, plain', 'layer_LD4.plain layer', 'f'),
                ('layer', 'layer_LD4.layer', 'f'),
                ('in pieces', 'layer_LD4.layer in pieces', 'f'),
            ),
        ),
    ),
    'run': (
        (
            'A run that saves every few steps, and goes on',
            (
                LENGTH,
                ('target', 'target_tokens', 'n'),
                ('step', 'seconds.step', 's'),
                ('step that saves', 'seconds.saving', 's'),
                ('ratio', 'saving_ratio', 'x'),
                ('during writing', 'seconds.during', 's'),
                ('on disk after', 'seconds.writing', 's'),
                ('on disk', 'state_bytes', 'B'),
                ('waits for data', 'data_wait', '%'),
                ('ready again after', 'seconds.ready', 's'),
                ('peak', 'peak', 'B'),
            ),
        ),
    ),
    'cost': (
        (
            'A document, read and summarised',
            (
                LENGTH,
                ('written', 'tokens', 'n'),
                ('per document', 'seconds_per_book', 's'),
                ('joules', 'joules', 'n'),
                ('money', 'money', 'g'),
                ('grams CO2', 'grams_co2', 'f'),
                ('peak', 'peak', 'B'),
            ),
        ),
    ),
    'gsg': (
        (
            'Gap sentences, per document',
            (
                ('words', 'length', 'n'),
                ('choose', 'seconds.choose', 's'),
                ('sequential', 'seconds.choose, sequential', 's'),
                ('rouge_score', 'seconds.loop', 's'),
                ('ratio', 'ratio', 'x'),
                ('make', 'seconds.make', 's'),
                ('make and tokenise', 'seconds.make and tokenise', 's'),
                ('documents/s', 'documents_per_second', 'n'),
                ('cores for 256/s', 'cores', 'f'),
            ),
        ),
    ),
}
_RATIOS = (
    ('samples/s', 'samples_per_second', 'g'),
    ('time / ours', 'ratio', 'x'),
    ('peak of process', 'peak', 'B'),
    ('our peak / its', 'peak_ratio', 'x'),
)
# command -> (heading, columns) of the tables that compare models.
COMPARISONS = {
    'encode': (
        'The whole encoder',
        (
            LENGTH,
            ('encoder', 'seconds', 's'),
            ('tokens/s', 'tokens_per_second', 'n'),
            ('time / ours, made', 'ratio_made', 'x'),
            ('time / ours, kept', 'ratio_kept', 'x'),
            ('peak of process', 'peak', 'B'),
            ('our peak / its', 'peak_ratio', 'x'),
        ),
    ),
    'generate': (
        'The whole model',
        (LENGTH, ('whole', 'seconds', 's'), *_RATIOS),
    ),
    'train': ('A train step', (LENGTH, ('step', 'seconds', 's'), *_RATIOS)),
}
LONGEST = (
    ('model', 'subject', 't'),
    ('longest input', 'length', 'n'),
    ('peak of process', 'peak_bytes', 'B'),
    ('did not fit', 'ended_at', 'n'),
)


def make_tables(result):
  """Yields (heading, columns, rows) of a result."""
  for heading, columns in TABLES[result['command']]:
    if result['command'] == 'decode':
      yield from _decode_tables(heading, columns, result['rows'])
    else:
      yield heading, columns, result['rows']
  if result.get('contest'):
    heading, columns = COMPARISONS[result['command']]
    for name in dict.fromkeys(row['subject'] for row in result['contest']):
      yield f'{heading}: {name}', columns, [
          row for row in result['contest'] if row['subject'] == name
      ]
  if result.get('longest'):
    yield 'Longest input within the memory limit', LONGEST, result['longest']


def _decode_tables(heading, columns, rows):
  """Yields one table for each form of the input's cache."""
  forms = dict.fromkeys(
      form for row in rows for form in row.get('cache_bytes', ())
  )
  for form in forms or ('-',):
    yield f'{heading}: {form}', tuple(
        (title, path.format(form), unit) for title, path, unit in columns
    ), rows


def look_up(row, path):
  """Returns row['a']['b'] for 'a.b', None if missing; b may contain dots."""
  if path == 'peak':  # of the device, if it has its own memory
    return row.get('device_peak_bytes') or row.get('peak_bytes')
  key, _, rest = path.partition('.')
  value = row.get(key)
  return value.get(rest) if rest and value is not None else value


def column_growth(rows, path):
  """Returns the growth of a time in rows, see `growth.describe_growth`."""
  return growth.describe_growth(
      [
          (row['length'], look_up(row, path))
          for row in rows
          if look_up(row, path)
      ]
  )


def all_growth(result):
  """Returns {heading: {title: growth}} of all time columns of a result."""
  return {
      heading: {
          title: column_growth(rows, path)
          for title, path, unit in columns
          if unit == 's'
      }
      for heading, columns, rows in make_tables(result)
  }
