"""The stream of summaries: documents in, one result after the other out.

The command, Python (`Summarizer.summarize`) and the summaries of parts read
this stream. Documents of the same padded shape share a batch
(`reading.padded_shape`). A batch shrinks until its estimated memory fits
(`batch_memory`). A document that does not fit alone is refused before anything
is computed for it.
"""

import dataclasses
import itertools
import math
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from locost_jax import models
from locost_jax.attribution import selected_tokens
from locost_jax.config import decode_settings
from locost_jax.devices import compiling
from locost_jax.devices import memory
from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.summarizing import batch_memory
from locost_jax.summarizing import reading
from locost_jax.vocabularies import token_ids

# Documents are tokenised in portions of this many characters, so that the
# first summary does not wait for the last document.
_PORTION = 2**24
_MOST_UNKNOWN = 0.1  # share of a document's tokens
# Shorter documents are padded to this: fewer programs to compile.
_SMALLEST_LENGTH = 64


class Parts(NamedTuple):
  """How to summarise part by part."""

  parts: str  # 'join', 'rank' or 'hierarchical'
  part_length: int  # maximum tokens of a part, with bos and eos
  summary_length: int  # maximum tokens of the summary; 0: no limit


@dataclasses.dataclass(frozen=True)
class Options:
  """How documents are read and their summaries written."""

  settings: decode_settings.Settings
  seed: int = 0  # of sampling
  max_input_length: int | None = None  # tokens read of a document; None: all
  batch_size: int | None = None  # most documents; None: see `batch_memory`
  available: int | None = None  # bytes, parameters included; None: no limit
  keep_memory: bool = False  # whether a Done has `memory`
  parts: Parts | None = None  # None: whole documents


class Job(NamedTuple):
  """A document to summarise."""

  number: int  # index among all documents
  document: Any
  sha256: str = ''  # of its text
  pages: Any = None  # lists of ids, see `reading.Read`
  total: int = 0  # tokens of the whole document
  dropped: int = 0  # parts not read

  @property
  def read(self):
    """The number of tokens that are read."""
    return sum(map(len, self.pages))


class Done(NamedTuple):
  """The result for a document: a row, or an InputError and no row."""

  job: Job
  row: Any = None
  error: Any = None
  tokens: Any = None  # int32 [written], padding included
  memory: Any = None  # the encoder's output, if kept
  score: float = 0.0  # of `decode`


def stream(summarizer, jobs, options, progress, name=None):
  """Yields a Done for each document, in the order they are finished.

  Args:
    jobs: list of Job, not yet tokenised.
    options: Options, without parts.
    progress: a `progress.Progress`, or what has its show, head and note_once.
    name: of the document, if the jobs are parts of one.
  """
  config = summarizer.config
  for portion in _portions(jobs):
    tokenized = []
    for job in portion:
      progress.show('tokenising', len(tokenized), len(portion))
      try:
        tokenized.append(_tokenize(summarizer, job, options.max_input_length))
      except InputError as error:
        yield Done(job, error=error)
    if name is None:
      for job in tokenized:
        report_unknown(summarizer.vocabulary, job, job.pages, progress)
        report_separators(summarizer.config, job, progress)
    batches = reading.make_batches(
        tokenized,
        lambda job: reading.padded_shape(
            config, job.pages, bool(summarizer.pages), _SMALLEST_LENGTH
        ),
        lambda shape: batch_memory.most_rows(summarizer, options, shape),
    )
    summarizer.kernels.expect(shape[-1] for shape, _ in batches)
    for shape, batch in batches:
      progress.head(_head(batch, jobs, name))
      most = batch_memory.most_rows(summarizer, options, shape)
      if not most:
        (job,) = batch
        yield Done(
            job, error=batch_memory.too_large(summarizer, options, job, shape)
        )
      else:
        yield from _write_batch(
            summarizer, batch, (most, *shape), options, progress
        )


def report_separators(config, job, progress):
  """Notes a document with more separators than the model takes for them."""
  most, mark = config.max_separators, config.separator_id
  found = sum(list(page).count(mark) for page in job.pages) if most else 0
  if found > most:
    text = f'{job.document.id}: has {found} separators; only the first {most} '
    text = visible(text + '(model.max_separators) see the whole text')
    progress.note_once(f'separators of {job.number}', text)


def report_unknown(vocabulary, job, pages, progress):
  """Notes the first document of a file with many unknown tokens in `pages`."""
  ids = np.concatenate([np.ravel(page) for page in pages])
  share = token_ids.unknown_share(vocabulary, ids)
  if share > _MOST_UNKNOWN:
    progress.note_once(
        job.document.source,
        visible(
            f'{job.document.id}: {share:.0%} of its tokens are characters that '
            "the model's vocabulary does not have; expected a model trained on "
            'this language'
        ),
    )


def _portions(jobs):
  lengths = (len(job.document.text) for job in jobs)
  starts = itertools.accumulate(lengths, initial=0)
  for _, portion in itertools.groupby(
      zip(jobs, starts), lambda pair: pair[1] // _PORTION
  ):
    yield [job for job, _ in portion]


def _tokenize(summarizer, job, most):
  """Returns a Job with its tokens; an InputError if that is impossible."""
  name = job.document.id
  try:
    read = summarizer.read(job.document.as_read, most)
  except InputError:
    raise
  except Exception as error:  # a tokenizer may raise anything
    reason = f'{type(error).__name__}: {" ".join(str(error).split())}'
    raise InputError(f'{name}: cannot be tokenised: {reason}') from error
  models.check_length(
      summarizer.config,
      max(map(len, read.pages)),
      name,
      '; --parts=rank or hierarchical reads it part by part, '
      '--max_input_length its beginning',
  )
  pages = [np.asarray(page, np.int32) for page in read.pages]
  return job._replace(pages=pages, total=read.tokens, dropped=read.dropped)


def _write_batch(summarizer, batch, shape, options, progress):
  """Yields a Done for each job of a batch, halved if memory runs out.

  Args:
    shape: (most rows of the batch, *padded shape of each document).
  """
  done = _generate(summarizer, batch, shape, options, progress)
  if done is not None:
    yield from done
  elif len(batch) > 1:
    half = len(batch) // 2
    for part in (batch[:half], batch[half:]):
      yield from _write_batch(
          summarizer, part, (len(part), *shape[1:]), options, progress
      )
  else:
    (job,) = batch
    flag = batch_memory.limiting_flag(summarizer)
    yield Done(
        job,
        error=InputError(
            f'{job.document.id}: the device has not the memory for its '
            f'{job.read} tokens: --{flag} lowers the need'
        ),
    )


def _generate(summarizer, batch, shape, options, progress):
  """Returns a Done for each job; None if the device ran out of memory."""
  # Round a batch of short documents up to a power of two so that few shapes are
  # compiled. The extra rows repeat real documents, so decoding them takes no
  # extra steps.
  fit = batch_memory.BATCH_TOKENS // math.prod(shape[1:])
  rows = reading.power_of_two_in(2 * len(batch) - 1)
  rows = max(len(batch), min(rows, shape[0], fit))
  inputs, mask = reading.pad(
      [batch[row % len(batch)].pages for row in range(rows)],
      shape[1:],
      options.settings.pad_id,
  )
  start = encoded = time.monotonic()

  def watch(stage, done, total):
    nonlocal encoded
    if stage == 'encoding':
      encoded = time.monotonic()
    progress.show(stage, done, total)

  watch('encoding', 0, 1)
  kept, masks, scores = {}, [], []

  def look(memory):
    if options.keep_memory:
      kept.update(memory)
    if summarizer.config.select != 'none':
      masks.extend(np.asarray(memory['mask']))

  try:
    with compiling.describe(compiling.shape_of(inputs)):
      tokens = summarizer.generate(
          inputs,
          mask,
          seed=options.seed,
          settings=options.settings,
          progress=watch,
          on_encoded=look,
          on_scores=scores.extend,
      )
  except (jax.errors.JaxRuntimeError, MemoryError) as error:
    if not memory.is_out_of_memory(error):
      raise
    return None
  # A document's share: the seconds of all documents add up to the whole.
  times = np.diff([start, encoded, time.monotonic()]) / len(batch)
  done = []
  for i, (job, written) in enumerate(zip(batch, tokens)):
    row = _row(summarizer, job, written, masks[i : i + 1], times, len(batch))
    if length := cut_length(written, options.settings):
      row['cut_at'] = length
    own = {name: x[i : i + 1] for name, x in kept.items()} or None
    done.append(Done(job, row, None, written, own, float(scores[i])))
  return done


def cut_length(tokens, settings):
  """Returns at how many tokens a summary was cut; None: the model ended it."""
  length = np.count_nonzero(tokens != settings.pad_id)
  is_ended = (tokens == settings.eos_id).any()
  is_forced = settings.forced_last_token >= 0 and length >= settings.max_length
  return None if is_ended and not is_forced else int(length)


def _row(summarizer, job, tokens, masks, seconds, documents):
  """Makes the row of a document, one of `documents` in its batch.

  Args:
    masks: [which of its tokens were selected]; []: the model selects none.
    seconds: its share of encoding and of decoding.
  """
  encoding, decoding = map(float, seconds)
  selected = {}
  for mask in masks:
    chosen = selected_tokens.is_selected(summarizer, job.pages, mask)
    selected = dict(tokens_selected=int(chosen.sum()))
  document = job.document
  return dict(
      id=document.id,
      prediction=summarizer.vocabulary.decode(tokens.tolist()),
      source=document.source,
      sha256=job.sha256,
      **dict(document.references),
      **({'query': document.query} if document.query else {}),
      tokens_total=job.total,
      tokens_read=job.read,
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
