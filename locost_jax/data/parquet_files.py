"""Reads parquet files a few rows at a time. Needs pyarrow, as TFDS does."""

from locost_jax.errors import InputError

_OPTIONAL = ('id', 'query', 'references', 'sections', 'documents')
_ROWS = 16  # in memory at once
_BYTES = 1 << 20  # read from one column at once
_SHOWN = 12  # column names in an error message


def read_rows(path, fields, text_unit=None):
  """Reads the rows of a file; see `file_formats.read_rows`.

  Args:
    fields: names of the required columns of strings.
    text_unit: not used.

  Yields:
    One dict per row, in order, with these and the optional columns and without
    nulls.

  Raises:
    InputError: pyarrow is not installed; the file is not parquet or damaged;
      a column is missing or does not hold strings.
  """
  del text_unit
  try:
    import pyarrow
    from pyarrow import parquet
  except ImportError:
    raise InputError(
        f'{path}: parquet needs pyarrow: pip install "locost_jax[train]"'
    ) from None
  if path.lower().endswith('.gz'):
    raise InputError(
        f'{path}: parquet compresses its own columns: expected a file that is '
        'not compressed by gzip'
    )
  number = 0
  for batch in _batches(path, fields, pyarrow, parquet):
    for i in range(batch.num_rows):
      number += 1
      yield _row(f'{path}: row {number}', batch, i, fields)


def _batches(path, fields, pyarrow, parquet):
  """Yields record batches of the required and optional columns."""
  try:
    # Read page by page; by default pyarrow buffers the whole file.
    file = parquet.ParquetFile(path, buffer_size=_BYTES, pre_buffer=False)
  except (pyarrow.ArrowException, OSError) as error:
    raise InputError(
        f'{path}: not a parquet file: {_one_line(error)}'
    ) from None
  with file:
    schema = file.schema_arrow
    _check_columns(path, schema, fields, pyarrow)
    names = [*fields, *(n for n in _OPTIONAL if n in schema.names)]
    batches = file.iter_batches(_ROWS, columns=list(dict.fromkeys(names)))
    while True:
      try:
        batch = next(batches, None)
      except (pyarrow.ArrowException, OSError) as error:
        raise InputError(
            f'{path}: cannot be read: {_one_line(error)}'
        ) from None
      if batch is None:
        return
      yield batch


def _check_columns(path, schema, fields, pyarrow):
  """Raises an InputError unless each field is exactly one string column."""
  for name in fields:
    if name not in schema.names:
      shown = ', '.join(map(repr, schema.names[:_SHOWN])) or 'none'
      more = ', ...' * (len(schema.names) > _SHOWN)
      raise InputError(f'{path}: no field {name!r}; the file has {shown}{more}')
    if schema.names.count(name) > 1:
      raise InputError(f'{path}: two columns are called {name!r}')
    kind = schema.field(name).type
    if pyarrow.types.is_dictionary(kind):
      kind = kind.value_type
    if kind not in (
        pyarrow.string(),
        pyarrow.large_string(),
        pyarrow.string_view(),
    ):
      raise InputError(f'{path}: field {name!r} must hold strings, got {kind}')


def _row(where, batch, i, fields):
  """Returns a row of a batch as a dict."""
  row = {}
  for name, column in zip(batch.schema.names, batch.columns):
    try:
      value = column[i].as_py()
    except UnicodeDecodeError:
      raise InputError(f'{where}: field {name!r} is not UTF-8') from None
    if value is not None:
      row[name] = value
    elif name in fields:
      raise InputError(f'{where}: field {name!r} must be a string, got null')
  return row


def _one_line(error):
  return ' '.join(str(error).split())[:200]
