"""Summarises documents in batches that fit into memory.

Documents of the same padded shape share a batch (`batching.padded_shape`). A
batch shrinks until its estimated memory fits. A document that does not fit
alone is refused before anything is computed for it.
"""

import dataclasses
import hashlib
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from locost_jax import models
from locost_jax.attribution import selected_tokens
from locost_jax.devices import compiling
from locost_jax.devices import memory
from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.models import parameters
from locost_jax.summarizing import batch_memory
from locost_jax.summarizing import batching
from locost_jax.summarizing import texts
from locost_jax.summarizing import time_left as time_left_lib
from locost_jax.summarizing import unknown_script

# Documents are tokenised in portions of this many characters, so that the
# first summary does not wait for the last document.
_PORTION = 2**24
# Settings that are not arguments of `Summarizer.generate`.
_NO_ARGUMENTS = (
    'max_input_length',
    'eos_id',
    'pad_id',
    'start_id',
    *(field.name for field in dataclasses.fields(texts.Pages)),
)


class Job(NamedTuple):
  """A document to summarise."""

  number: int  # index among all documents
  document: Any
  sha256: str  # of its text
  pages: Any = None  # lists of ids, see `reading.Read`
  read: int = 0  # tokens of the whole document
  dropped: int = 0  # parts not read

  @property
  def kept(self):
    """The number of tokens that are read."""
    return sum(map(len, self.pages))


class Done(NamedTuple):
  """The result for a document: a row, or an InputError and no row."""

  job: Job
  row: Any = None
  error: Any = None
  tokens: Any = None  # int32 [written], padding included
  memory: Any = None  # the encoder's output, if kept
  levels: Any = None  # of `hierarchical`: a list of Part for each level


class _Written(NamedTuple):
  """The result for a batch."""

  tokens: Any  # int32 [rows, written]
  encoding: float  # seconds
  decoding: float  # seconds
  memory: Any  # the encoder's output, or None
  mask: Any  # [rows, ...], which tokens were selected; None: all


def hash_text(text):
  """Returns the SHA-256 of a text's UTF-8 form, in hexadecimal."""
  return hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()


def fingerprint(summarizer):
  """Returns a hash of a model's parameters, config and vocabulary."""
  digest = hashlib.sha256(repr(summarizer.config).encode())
  digest.update(summarizer.vocabulary.fingerprint.encode())
  for path, leaf in parameters.flatten(summarizer.params).items():
    leaf = np.ascontiguousarray(leaf)
    digest.update(f'{path} {leaf.dtype.name}{leaf.shape}'.encode())
    digest.update(leaf.reshape(-1).view(np.uint8))
  return digest.hexdigest()[:16]


def summarize(
    summarizer,
    jobs,
    settings,
    progress,
    batch_size=None,
    available=None,
    keep_memory=False,
    share=None,
):
  """Yields a Done for each document, in the order they are finished.

  Args:
    jobs: list of Job, not yet tokenised.
    settings: dict: max_input_length (None: no limit), seed, and the fields of
      `decode_settings.Settings`.
    batch_size: maximum documents in a batch; None: see `batch_memory`.
    available: bytes that may be used, parameters included; None: no limit.
    keep_memory: whether a Done has `memory`.
    share: `time_left.Share` if the jobs are parts of a document.
  """
  limits = batch_memory.BatchLimits(summarizer, settings, batch_size, available)
  # An empty text (a level whose summaries are all empty) counts, too.
  size = lambda jobs: sum(max(1, len(job.document.text)) for job in jobs)
  time_left = share.time_left if share else time_left_lib.TimeLeft(jobs)
  scale = share.characters / size(jobs) if share else 1
  for portion in _portions(jobs):
    tokenized = []
    for done in _tokenize(summarizer, portion, settings, progress, tokenized):
      yield done
      time_left.finish(scale * size([done.job]))
    if not share:
      unknown_script.report(summarizer.vocabulary, tokenized, progress)
    for shape, batch in batching.make_batches(
        tokenized, limits.shape_of, limits.rows
    ):
      is_all = len(jobs) == 1 and not share
      progress.head(
          _head(batch, jobs, share and share.name),
          None if is_all else time_left.seconds,
      )
      most = limits.rows(shape)
      if not most:
        (job,) = batch
        yield Done(job, error=limits.too_large(job, shape))
      else:
        yield from _summarize_batch(
            summarizer, batch, shape, most, settings, progress, keep_memory
        )
      time_left.finish(scale * size(batch))


def _portions(jobs):
  portion, characters = [], 0
  for job in jobs:
    portion.append(job)
    characters += len(job.document.text)
    if characters >= _PORTION:
      yield portion
      portion, characters = [], 0
  if portion:
    yield portion


def _tokenize(summarizer, portion, settings, progress, tokenized):
  """Tokenises documents into a list; yields a Done for each failure.

  Args:
    summarizer, settings, progress: see `summarize`.
    portion: list of Job.
    tokenized: list of Job; filled.
  """
  for job in portion:
    progress.show('tokenising', len(tokenized), len(portion))
    name = job.document.id
    try:
      read = summarizer.read(job.document.as_read, settings['max_input_length'])
      job = job._replace(
          pages=[np.asarray(page, np.int32) for page in read.pages],
          read=read.tokens,
          dropped=read.dropped,
      )
      models.check_length(
          summarizer.config,
          max(map(len, job.pages)),
          name,
          '; a --max_input_length reads its beginning',
      )
      tokenized.append(job)
    except InputError as error:
      yield Done(job, error=error)
    except Exception as error:  # a tokenizer may raise anything
      reason = f'{type(error).__name__}: {" ".join(str(error).split())}'
      yield Done(
          job, error=InputError(f'{name}: cannot be tokenised: {reason}')
      )


def _summarize_batch(
    summarizer, batch, shape, most, settings, progress, keep_memory
):
  """Yields a Done for each job of a batch.

  If the device runs out of memory, the batch is halved and tried again.

  Args:
    summarizer, settings, progress, keep_memory: see `summarize`.
    batch: list of Job.
    shape: padded shape of each document.
    most: maximum rows of the batch.
  """
  written = _write(
      summarizer, batch, shape, most, settings, progress, keep_memory
  )
  if written is None and len(batch) == 1:
    (job,) = batch
    yield Done(
        job,
        error=InputError(
            f'{job.document.id}: the device has not the memory for its '
            f'{job.kept} tokens: '
            f'--{batch_memory.limiting_flag(summarizer)} lowers the need'
        ),
    )
  elif written is None:
    half = len(batch) // 2
    for part in (batch[:half], batch[half:]):
      yield from _summarize_batch(
          summarizer, part, shape, len(part), settings, progress, keep_memory
      )
  else:
    for i, (job, tokens) in enumerate(zip(batch, written.tokens)):
      mask = None if written.mask is None else written.mask[i]
      row = _make_row(summarizer, job, tokens, mask, written, len(batch))
      own = None
      if written.memory is not None:
        own = {name: x[i : i + 1] for name, x in written.memory.items()}
      yield Done(job, row, tokens=tokens, memory=own)


def _write(
    summarizer,
    batch,
    shape,
    most,
    settings,
    progress,
    keep_memory,
):
  """Writes the summaries of a batch, arguments as in `_summarize_batch`.

  Returns:
    _Written; None if the device ran out of memory.
  """
  inputs, mask = _pad(batch, shape, most, settings['pad_id'])
  start = encoded = time.monotonic()

  def watch(stage, done, total):
    nonlocal encoded
    if stage == 'encoding':
      encoded = time.monotonic()
    progress.show(stage, done, total)

  watch('encoding', 0, 1)
  kept, masks = [], []

  def look(memory):
    if keep_memory:
      kept.append(memory)
    if selected_tokens.selects(summarizer.config):
      masks.append(np.asarray(memory['mask']))

  try:
    with compiling.describe(compiling.shape_of(inputs)):
      tokens = summarizer.generate(
          inputs,
          mask,
          progress=watch,
          on_encoded=look,
          **{
              key: value
              for key, value in settings.items()
              if key not in _NO_ARGUMENTS
          },
      )
  except (jax.errors.JaxRuntimeError, MemoryError) as error:
    if not memory.is_out_of_memory(error):
      raise
    return None
  return _Written(
      tokens,
      encoded - start,
      time.monotonic() - encoded,
      kept[0] if kept else None,
      masks[0] if masks else None,
  )


def _pad(batch, shape, most, pad_id):
  """Returns inputs int32 [rows, *shape] and their mask.

  The batch is rounded up to a power of two so that few shapes are compiled. The
  extra rows repeat real documents, so decoding them takes no extra steps.
  """
  rows = min(batching.power_of_two_in(2 * len(batch) - 1), most)
  documents = [batch[row % len(batch)].pages for row in range(rows)]
  return batching.pad(documents, shape, pad_id)


def _make_row(summarizer, job, tokens, mask, written, documents):
  """Makes the row of one document.

  Args:
    tokens: ids of its summary.
    mask: [...], which of its tokens were selected; None: all.
  """
  # A document's share: the seconds of all documents add up to the whole.
  encoding, decoding = (
      seconds / documents for seconds in (written.encoding, written.decoding)
  )
  selected = {}
  if mask is not None:
    number = selected_tokens.count(summarizer, job.pages, mask)
    selected = dict(tokens_selected=number)
  return dict(
      id=job.document.id,
      prediction=summarizer.vocabulary.decode(tokens.tolist()),
      source=job.document.source,
      sha256=job.sha256,
      **dict(job.document.references),
      **({'query': job.document.query} if job.document.query else {}),
      tokens_read=job.read,
      tokens_kept=job.kept,
      **selected,
      seconds=round(encoding + decoding, 3),
      seconds_encoding=round(encoding, 3),
      seconds_decoding=round(decoding, 3),
      documents_in_batch=documents,
      peak_memory_bytes=memory.peak_bytes(),
  )


def _head(batch, jobs, name=None):
  """'alice.txt', '3/12 and 4 more', or with a name 'NAME, part 3/12'."""
  if name is None and len(jobs) == 1:
    return visible(batch[0].document.id)
  # Jobs keep their numbers if an earlier call has done some of them.
  total = max(len(jobs), jobs[-1].number + 1)
  front = '' if name is None else f'{visible(name)}, part '
  more = f' and {len(batch) - 1} more' if batch[1:] else ''
  return f'{front}{batch[0].number + 1}/{total}{more}'
