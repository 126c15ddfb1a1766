"""Reads and writes files of predictions and references."""

import hashlib
import json
import os
from pathlib import Path

from locost_jax import files
from locost_jax.config import decode_settings
from locost_jax.config import progress
from locost_jax.data import sources
from locost_jax.errors import disk_error
from locost_jax.errors import InputError
from locost_jax.evaluation import metric_table
from locost_jax.evaluation.metrics import metric

# Keys of config.data that determine what the model reads of a document.
_READING = (
    'max_input_length',
    'input_field',
    'query_field',
    'query_in',
    'pages',
    'num_pages',
    'page_length',
    'empty_page',
    'document_length',
)

# Fields of rows that are no settings and no documents.
_RESULTS = 'prediction', 'tokens_kept', 'signature', 'checkpoint', 'test_set'


def read(path, references=True, documents=False):
  """Reads a JSONL file of predictions as a list of `metric.Row`.

  Fields of a row: `prediction`, a string; `reference`, a string, or
  `references`, a list of strings; optional `id`, a string or an integer,
  `signature` and `test_set`, strings, and `document`. Other fields are ignored.

  Args:
    references: whether every row must have references.
    documents: whether to read `document`, which may be a whole book.

  Raises:
    InputError: the file cannot be read or has no rows, or a row is not UTF-8,
      not JSON, or lacks a field; the message names file and line. The rows are
      not all of the `test_set` that the first one names.
  """
  rows = []
  for number, line in sources.read_lines(path):
    where = f'{path}:{number}'
    row = sources.parse_row(path, number, line, ['prediction'])
    has_any = references or 'reference' in row or 'references' in row
    texts = [row.get(name) for name in ('signature', 'test_set')]
    rows.append(
        metric.Row(
            row['prediction'],
            _references(where, row) if has_any else [],
            _document(where, row) if documents else None,
            sources.id_of(where, row, is_whole=True),
            number,
            *(text if isinstance(text, str) else '' for text in texts),
        )
    )
  if not rows:
    raise InputError(
        f'{path}: has no rows; expected JSON Lines with prediction and reference'
    )
  if expected := rows[0].test_set:
    found = test_set((row.id, row.references) for row in rows)
    if found != expected:
      raise InputError(
          f'{path}: its rows are {found}; expected {expected}, which were '
          'evaluated; to score these rows alone, remove `test_set` from them'
      )
  return rows


def test_set(documents):
  """Returns '500 documents, 0123456789abcdef': a hash of what is evaluated.

  Their order does not count, as it depends on their lengths in tokens.

  Args:
    documents: pairs of an id and a reference, or a list of all references.
  """
  lines = sorted(
      json.dumps([name, metric.as_list(texts)]) for name, texts in documents
  )
  digest = hashlib.sha256('\n'.join(lines).encode()).hexdigest()
  count = f'{len(lines):,} document{"s" * (len(lines) != 1)}'
  return f'{count}, {digest[:16]}'


def _references(where, row):
  """Returns the references of a row, a non-empty list of str."""
  if 'references' not in row:
    sources.check_texts(where, row, ['reference'])
    return [row['reference']]
  found = row['references']
  if 'reference' in row:
    raise InputError(
        f"{where}: has 'reference' and 'references'; expected one of them"
    )
  if (
      not isinstance(found, list)
      or not found
      or not all(isinstance(text, str) for text in found)
  ):
    raise InputError(
        f"{where}: field 'references' must be a list of at least one string"
    )
  return found


def read_rows(path, documents, chosen):
  """Returns the `metric.Row`s of a file of predictions, with their documents.

  Args:
    documents: another JSONL file with `document`. Its rows are matched by `id`
      if all rows of both files have one, else by position. None: the rows of
      `path` may have documents.
    chosen: {name: Metric}, which may need documents.

  Raises:
    InputError: a file cannot be read, the rows do not match, or a document is
      missing.
  """
  rows, source = read(path, documents=documents is None), path
  if documents is not None:
    source, others, field = f'--documents={documents}', [], _input_field(path)
    for number, line in sources.read_lines(documents):
      where, row = f'{documents}:{number}', sources.parse_row(
          documents, number, line, []
      )
      others.append(
          (
              sources.id_of(where, row, is_whole=True),
              _document(where, row, field),
          )
      )
    texts = _match([row.id for row in rows], others, path, documents)
    pairs = zip(rows, texts, strict=True)
    rows = [row._replace(document=text) for row, text in pairs]
  texts = [row.document for row in rows]
  for name, one in chosen.items():
    if one.needs == metric.DOCUMENT and None in texts:
      raise InputError(
          f"{source}: row {texts.index(None) + 1} has no 'document', which "
          f'--metrics={name} needs; --documents=FILE reads them from another '
          'file'
      )
  return rows


def _match(ids, others, path, documents):
  """Returns the documents of rows, from [(id or None, document or None)]."""
  known = dict(others)
  if None not in ids and None not in known and len(known) == len(others):
    if missing := [key for key in ids if key not in known]:
      raise InputError(
          f'--documents={documents}: no row with the id {missing[0]} of '
          f'{path}; {len(missing):,} of its {len(ids):,} ids are missing'
      )
    return [known[key] for key in ids]
  if len(others) != len(ids):
    raise InputError(
        f'--documents={documents}: {len(others):,} rows without ids, '
        f'expected the {len(ids):,} of {path}'
    )
  return [document for _, document in others]


def _input_field(path):
  """Returns the field of documents of the run that wrote a file, or None."""
  row = sources.parse_row(path, *next(iter(sources.read_lines(path))), [])
  settings = row.get('settings')
  return settings.get('input_field') if isinstance(settings, dict) else None


def _document(where, row, field=None):
  """Returns the document of a row, or None."""
  name = field if field in row else 'document'
  if row.get(name) is not None:
    sources.check_texts(where, row, [name])
  return row.get(name)


def selection_of(model_config):
  """Describes how the decoder's input is selected; '' without a selector."""
  if model_config.get('select') != 'ppo':
    return ''
  how = {'sample': 'sampling'}.get(model_config.selection)
  return f'selected by {how or model_config.selection}'


def metadata(config, documents, checkpoint=None):
  """Returns the fields that all rows of a predictions file share.

  They are signature (of ROUGE, if measured), settings (of decoding, as
  `summarize` writes them, and of reading) and, if it is on disk, checkpoint:
  {step, sha256} of the model.
  """
  settings = decode_settings.of_run(config)
  found = dict(
      settings=dict(
          decode_settings.as_dict(settings),
          method=decode_settings.method_of(settings),
          seed=config.decode.seed,
          selection=selection_of(config.model),
          **{key: config.data.get(key) for key in _READING},
      )
  )
  signatures = metric_table.signatures(
      config.eval.metrics, documents, config.eval.protocol
  )
  if 'rouge' in signatures:
    found['signature'] = signatures['rouge']
  return found | ({'checkpoint': checkpoint} if checkpoint else {})


def try_write(path, rows, shared=()):
  """Writes rows as JSONL, atomically; reports a write error on stderr.

  A file of other settings or documents is kept: `NAME.settings-HASH.jsonl` is
  written instead of `NAME.jsonl`. `workdir.find` finds both. Returns the path,
  or ''.

  Args:
    rows: dicts from `evaluate.measure`; a list of references is written as
      `references`.
    shared: fields added to every row, see `metadata`.
  """
  lines = []
  shared = dict(shared)
  shared['test_set'] = test_set((row['id'], row['reference']) for row in rows)
  for row in rows:
    row = dict(row, **shared)
    if not isinstance(row['reference'], str):
      row['references'] = row.pop('reference')
    lines.append(json.dumps(row, ensure_ascii=False) + '\n')
  made_of = _made_of(lines)
  try:
    files.check_regular(path)
    if os.path.exists(path) and made_of != _made_of(
        Path(path).read_bytes().splitlines()
    ):
      kept, path = path, Path(path).with_suffix(f'.settings-{made_of}.jsonl')
      progress.note(f'{kept} has other settings or documents; wrote {path}')
    files.write(path, ''.join(lines))
  except (OSError, InputError) as error:
    reason = disk_error(error) or error
    progress.note(f'{path} could not be written: {reason}')
    return ''
  return str(path)


def _made_of(lines):
  """Returns a hash of the settings and references of rows in JSON, or None."""
  digest = hashlib.sha256()
  for line in lines:
    try:
      row = json.loads(line)
      for name in _RESULTS:
        row.pop(name, None)
    # A damaged file, or one of something else.
    except (ValueError, AttributeError, TypeError, RecursionError):
      return None
    digest.update(json.dumps(row, sort_keys=True).encode() + b'\n')
  return digest.hexdigest()[:8]
