"""Documents -> rows with their summaries, in batches that fit into memory.

Documents of like length share a batch (see `pretrained.padded_length`). A
batch is made smaller until its estimated memory is there; a document that does
not fit alone is refused before anything is computed for it.
"""

import hashlib
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from locost_jax import generate
from locost_jax import memory
from locost_jax import models
from locost_jax import pretrained
from locost_jax.errors import InputError
from locost_jax.models import in_pieces
from locost_jax.models import long_attention
from locost_jax.progress import duration

# By default as many documents share a batch as have this many tokens together,
# padding included: enough rows for the matrix products of short documents, and
# no more memory than one document of this length takes.
BATCH_TOKENS = 2**15
_MOST_ROWS = 64
# Documents are tokenised in portions of this many characters, so that the
# first summary does not wait for the last document.
_PORTION = 2**24
_COMPILING = 2**28  # bytes for compiling and the libraries' own needs
# Shorter documents are padded to this: fewer programs to compile.
_SMALLEST_LENGTH = 64
# Of the settings, what `Summarizer.generate` has no argument for.
_NOT_ASKED = ('max_input_length', 'eos_id', 'pad_id', 'start_id')


class Job(NamedTuple):
  """A document that is to be summarised."""

  number: int  # its place among all documents
  document: Any
  sha256: str  # of its text
  ids: Any = None  # int32 [kept tokens]
  read: int = 0  # tokens it has


class Done(NamedTuple):
  """What became of a document: a row, or an InputError and no row."""

  job: Job
  row: Any = None
  error: Any = None
  tokens: Any = None  # int32 [written], padding included
  memory: Any = None  # what the encoder gave for it, where that is asked for


def hash_text(text):
  """SHA-256 of a text's UTF-8 form, in hexadecimal."""
  return hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()


def fingerprint(summarizer):
  """Tells models apart: a hash of parameters, config and vocabulary."""
  digest = hashlib.sha256(repr(summarizer.config).encode())
  digest.update(summarizer.vocabulary.fingerprint.encode())
  for path, leaf in jax.tree_util.tree_leaves_with_path(summarizer.params):
    leaf = np.ascontiguousarray(leaf)
    name = jax.tree_util.keystr(path, simple=True, separator='/')
    digest.update(f'{name} {leaf.dtype.name}{leaf.shape}'.encode())
    digest.update(leaf.reshape(-1).view(np.uint8))
  return digest.hexdigest()[:16]


def needed_bytes(model, params, batch, length, settings):
  """Estimates what summarising a batch takes.

  Args:
    model: the Flax module.
    params: its parameters, or their shapes.
    batch: documents.
    length: tokens each is padded to.
    settings: dict with num_beams and max_length.

  Returns:
    {part: bytes}; `peak_of` adds them up.
  """
  c, itemsize = model.config, model.dtype.itemsize
  rows, width = batch * settings['num_beams'], c.num_heads * c.d_kv
  own = 2 * c.num_decoder_layers * rows * settings['max_length'] * width
  cross = 0 if length >= long_attention.ABSORBED else (
      2 * c.num_decoder_layers * batch * length * width)
  states = batch * length * c.d_model
  kernels = in_pieces.kernel_bytes(model, length)
  return {
      'parameters': sum(leaf.size * leaf.dtype.itemsize
                        for leaf in jax.tree.leaves(params)),
      'kernels': kernels if kernels <= generate.KEPT_BYTES else 0,
      'encoding': in_pieces.encoder_bytes(model, batch, length),
      'decoding': (states + cross + own) * itemsize + 16 * rows * c.vocab_size,
      'compiling': _COMPILING}


def peak_of(parts):
  """The peak of `needed_bytes`: decoding follows encoding."""
  return sum(parts.values()) - min(parts['encoding'], parts['decoding'])


def summarize(summarizer, jobs, settings, progress, batch_size=None,
              available=None, keep_memory=False):
  """Yields a Done for each document, in the order they are finished.

  Args:
    summarizer: of `locost_jax.load`, with a vocabulary.
    jobs: list of Job, not yet tokenised.
    settings: dict: max_input_length, or None for all of a document, seed, and
      the fields of `decode.Settings`.
    progress: a `progress.Progress`.
    batch_size: most documents in a batch; None: see BATCH_TOKENS.
    available: bytes that may be taken, parameters included; None: no limit.
    keep_memory: whether a Done has `memory`.
  """
  def needs(batch, length):
    return needed_bytes(summarizer.model, summarizer.params, batch, length,
                        settings)

  def length_of(job):
    return pretrained.padded_length(
        summarizer.config, len(job.ids), _SMALLEST_LENGTH)

  def rows(length):
    """The documents of this length that fit into a batch."""
    most = batch_size or _power_of_two(
        max(1, min(_MOST_ROWS, BATCH_TOKENS // length)))
    while most and available is not None and (
        peak_of(needs(most, length)) > available):
      most //= 2
    return most

  total = sum(len(job.document.text) for job in jobs)
  finished, start = 0, time.monotonic()
  for portion in _portions(jobs):
    waiting = []
    for job in portion:
      progress.show('tokenising', len(waiting), len(portion))
      job = _tokenize(summarizer, job, settings['max_input_length'])
      try:
        models.check_length(
            summarizer.config, len(job.ids), job.document.id,
            '; a --max_input_length reads its beginning')
        waiting.append(job)
      except InputError as error:
        yield Done(job, error=error)
        finished += len(job.document.text)
    for length, batch in pretrained.make_batches(waiting, length_of, rows):
      if finished:
        left = (time.monotonic() - start) * (total - finished) / finished
      progress.head(_head(batch, len(jobs), left if finished else None))
      if not rows(length):
        job, = batch
        yield Done(job, error=_too_large(job, length, needs, available))
      else:
        yield from _generate(summarizer, batch, length, rows(length), settings,
                             progress, keep_memory)
      finished += sum(len(job.document.text) for job in batch)


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


def _tokenize(summarizer, job, most):
  ids = summarizer.tokenize(job.document.text)
  kept = pretrained.truncate(ids, most)
  return job._replace(ids=np.asarray(kept, np.int32), read=len(ids))


def _generate(summarizer, batch, length, most, settings, progress,
              keep_memory):
  """Yields a Done for each job of a batch.

  A device that runs out of memory all the same is given half of the batch.
  """
  # Few different numbers of rows, few programs. What fills up is a copy: it
  # ends when the others do.
  rows = min(_power_of_two(2 * len(batch) - 1), most)
  inputs = np.full((rows, length), settings['pad_id'], np.int32)
  mask = np.zeros((rows, length), bool)
  for row in range(rows):
    ids = batch[row % len(batch)].ids
    inputs[row, :len(ids)] = ids
    mask[row, :len(ids)] = True
  start = encoded = time.monotonic()

  def watch(stage, done, total):
    nonlocal encoded
    if stage == 'encoding':
      encoded = time.monotonic()
    progress.show(stage, done, total)

  watch('encoding', 0, 1)
  arguments = {key: value for key, value in settings.items()
               if key not in _NOT_ASKED}
  kept = []
  try:
    tokens = summarizer.generate(
        inputs, mask, progress=watch,
        on_encoded=kept.append if keep_memory else None, **arguments)
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    tokens = None
  if tokens is None:
    if len(batch) == 1:
      yield Done(batch[0], error=InputError(
          f'{batch[0].document.id}: the device has not the memory for its '
          f'{len(batch[0].ids)} tokens: --max_input_length lowers the need'))
      return
    half = len(batch) // 2
    for part in (batch[:half], batch[half:]):
      yield from _generate(summarizer, part, length, len(part), settings,
                           progress, keep_memory)
    return
  # A document's share: the seconds of all documents add up to the whole.
  seconds = [(end - begin) / len(batch) for begin, end in (
      (start, encoded), (encoded, time.monotonic()))]
  for i, (job, written) in enumerate(zip(batch, tokens)):
    row = dict(
        id=job.document.id,
        prediction=summarizer.vocabulary.decode(written.tolist()),
        source=job.document.source, sha256=job.sha256, tokens_read=job.read,
        tokens_kept=len(job.ids), seconds=round(sum(seconds), 3),
        seconds_encoding=round(seconds[0], 3),
        seconds_decoding=round(seconds[1], 3), documents_in_batch=len(batch),
        peak_memory_bytes=memory.peak_bytes())
    own = {name: x[i:i + 1] for name, x in kept[0].items()} if kept else None
    yield Done(job, row, tokens=written, memory=own)


def _power_of_two(number):
  """The largest one that is not above `number`."""
  return 2 ** (int(number).bit_length() - 1)


def _head(batch, total, left):
  """'3/12 alice.txt' or '3/12 and 4 more', with the time for all of them."""
  text = batch[0].document.id
  if total > 1:
    text = f'{batch[0].number + 1}/{total}'
    if len(batch) > 1:
      text += f' and {len(batch) - 1} more'
    if left is not None:
      text += f', all in {duration(left)}'
  return text


def _too_large(job, length, needs, available):
  """The InputError of a document for which there is no memory."""
  parts = needs(1, length)
  shown = ', '.join(f'{name} {memory.show(size)}'
                    for name, size in parts.items())
  fits = [other for k in range(6, 40) for other in (2**k, 3 * 2**(k - 1))
          if other < length and peak_of(needs(1, other)) <= available]
  way_out = f'--max_input_length={max(fits)} fits' if fits else (
      'no length fits')
  return InputError(
      f'{job.document.id}: {len(job.ids)} tokens need about '
      f'{memory.show(peak_of(parts))} ({shown}), but '
      f'{memory.show(available)} are available: {way_out}')
