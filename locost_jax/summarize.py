"""Writes summaries: text in, one summary per document out.

  python -m locost_jax.summarize --checkpoint=runs/quickstart report.txt
  cat report.txt | python -m locost_jax.summarize --checkpoint=runs/quickstart -
  python -m locost_jax.summarize --checkpoint=DIR --format=json \\
      --output=summaries.jsonl part-*.jsonl

A FILE is a text (.txt, .md, .txt.gz, anything else), JSONL (.jsonl, .jsonl.gz),
each of whose rows is a document, or - for a text on standard input. Only
summaries go to stdout, one line per document in the order given; stderr tells
how much of each was read. Settings that are not given are those of the run
that trained the checkpoint.
"""

import json
import os
import sys
import time
from typing import NamedTuple

from absl import flags

from locost_jax import commands
from locost_jax.data import sources
from locost_jax.errors import InputError
from locost_jax.workdir import write

_JSONL = ('.jsonl', '.jsonl.gz')


class Document(NamedTuple):
  """A text and what to call it."""

  id: str
  text: str


def define_flags(values, argv):
  """Defines this command's flags."""
  del argv
  flags.DEFINE_string(
      'checkpoint', None, 'DIR: a WORKDIR (its best checkpoint, or its '
      'latest), a checkpoint in one, or a Hugging Face directory',
      flag_values=values)
  flags.DEFINE_integer(
      'max_length', None, 'most tokens of a summary', lower_bound=1,
      flag_values=values)
  flags.DEFINE_integer(
      'min_length', None, 'fewest tokens of a summary', lower_bound=0,
      flag_values=values)
  flags.DEFINE_integer(
      'max_input_length', None, 'tokens read of a document [all of them]',
      lower_bound=2, flag_values=values)
  flags.DEFINE_string(
      'input_field', 'document', 'of JSONL rows: where the document is',
      flag_values=values)
  flags.DEFINE_enum(
      'format', 'text', ['text', 'json'], 'text: a line per summary; json: an '
      'object per line with id, prediction, tokens_read, tokens_kept, seconds',
      flag_values=values)
  flags.DEFINE_string(
      'output', None, 'FILE: where the summaries go instead of stdout; JSON '
      'lines when it ends in .jsonl', flag_values=values)
  flags.DEFINE_string(
      'report', None, 'FILE.html: a page that shows which passages each '
      'sentence of the summary attended to; with several documents it lists '
      'their pages, FILE-1.html, FILE-2.html, ...', flag_values=values)


def main(values, arguments):
  """Runs the command.

  Args:
    values: the flags of `define_flags`.
    arguments: the FILEs.
  """
  if values.checkpoint is None:
    raise InputError('--checkpoint=DIR is missing: whose model?')
  if not arguments:
    raise InputError('no FILE given; - reads standard input')
  if None not in (values.min_length, values.max_length) and (
      values.min_length > values.max_length):
    raise InputError(f'--min_length={values.min_length} must not exceed '
                     f'--max_length={values.max_length}')
  for flag in ('output', 'report'):
    folder = os.path.dirname(os.path.abspath(values[flag].value or ''))
    if values[flag].value and not os.path.isdir(folder):
      raise InputError(f'--{flag}={values[flag].value}: no directory {folder}')
  documents = [document for path in arguments
               for document in read_documents(path, values.input_field)]
  # Only now: it takes a second, and the documents may be wrong.
  import locost_jax
  summarizer = locost_jax.load(values.checkpoint)
  if summarizer.vocabulary is None:
    raise InputError(f'{values.checkpoint}: has no vocabulary (spiece.model)')
  as_json = values.format == 'json' or (values.output or '').endswith('.jsonl')
  lines = []
  for row in summarize(summarizer, documents, values):
    line = json.dumps(row, ensure_ascii=False) if as_json else (
        ' '.join(row['prediction'].split()))
    lines.append(line + '\n')
    if not values.output:
      print(line, flush=True)
  if values.output:
    write(values.output, ''.join(lines))


def read_documents(path, input_field='document'):
  """Returns the Documents of a file.

  Args:
    path: a file name, or '-' for standard input.
    input_field: of JSONL rows.

  Raises:
    InputError: no such file, a directory, not UTF-8, not JSON, or a document
      without text.
  """
  if path == '-':
    try:
      documents = [Document('-', sys.stdin.buffer.read().decode('utf-8-sig'))]
    except UnicodeDecodeError as error:
      raise InputError(
          f'standard input: not UTF-8 (byte {error.start})') from None
  elif os.path.isdir(path):
    raise InputError(f'{path}: is a directory; expected a file')
  elif not os.path.exists(path):
    raise InputError(f'{path}: no such file')
  elif path.endswith(_JSONL):
    documents = [
        Document(str(row['id']) if 'id' in row else f'{path}:{number}',
                 row[input_field])
        for number, row in enumerate(
            sources.read_jsonl([path], (input_field,)), start=1)]
  else:
    documents = [Document(row['id'], row['text'])
                 for row in sources.read_texts([path])]
  if not documents:
    raise InputError(f'{path}: holds no document')
  for document in documents:
    if not document.text.strip():
      where = path if document.id == path else f'{path}, {document.id}'
      raise InputError(f'{where}: an empty document')
  return documents


def summarize(summarizer, documents, values):
  """Yields a row per document; tells of each on stderr.

  Args:
    summarizer: of `locost_jax.load`, with a vocabulary.
    documents: list of Document.
    values: flags max_length, min_length, max_input_length; None: as trained.

  Yields:
    dict(id, prediction, tokens_read, tokens_kept, seconds); tokens count the
    end mark.
  """
  from locost_jax import source_page  # and JAX with it
  digits = len(str(len(documents)))
  pages = []
  for number, document in enumerate(documents, start=1):
    start = time.monotonic()
    read = len(summarizer.tokenize(document.text))
    kept = min(read, values.max_input_length or read)
    prediction, = summarizer.summarize(
        [document.text], max_length=values.max_length,
        min_length=values.min_length, max_input_length=values.max_input_length)
    if values.report:
      pages.append(source_page.write(
          values.report, summarizer, document.id, document.text,
          summarizer.tokenize(prediction), dict(
              checkpoint=values.checkpoint, max_length=values.max_length,
              min_length=values.min_length,
              max_input_length=values.max_input_length),
          number, len(documents), values.max_input_length))
    seconds = time.monotonic() - start
    print(f'{number:{digits}}/{len(documents)}  {document.id}: {read} tokens '
          f'read, {kept} kept, {seconds:.1f} s', file=sys.stderr, flush=True)
    yield dict(id=document.id, prediction=prediction, tokens_read=read,
               tokens_kept=kept, seconds=round(seconds, 3))
  if len(pages) > 1:
    source_page.write_index(values.report, pages)


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
