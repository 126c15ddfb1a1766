"""Facts about a summary: what made it, and its line on stderr."""

import os

import jax

import locost_jax
from locost_jax.devices import memory
from locost_jax.summarizing import summaries
from locost_jax.workdir import checkpoint


def describe_origin(summarizer, settings, options):
  """Returns the fields of every row that reproduce its summary."""
  # Not chosen again: a run that trains may have a better one by now.
  path = os.path.abspath(summarizer.source)
  device = jax.local_devices()[0]
  how = options.parts._asdict() if options.parts else {}
  return dict(
      settings={**settings, **how},
      dtype=options.dtype,
      checkpoint=dict(
          path=path,
          step=checkpoint.step_of(path),
          fingerprint=summaries.fingerprint(summarizer),
      ),
      versions=dict(locost_jax=locost_jax.__version__, jax=jax.__version__),
      backend=device.platform,
      device=device.device_kind,
  )


def describe_done(done, total):
  """Returns the line that reports a document on stderr.

  Args:
    done: summaries.Done, with a row.
  """
  row, dropped = done.row, done.job.dropped
  unread = ''
  if dropped:
    which = 'part' if dropped == 1 else f'{dropped} parts'
    unread = f'the last {which} not read, '
  selected = ''
  if 'tokens_selected' in row:
    selected = f'{row["tokens_selected"]:,} selected, '
  if 'levels' in row:
    left = row['parts'] - len(row['parts_used'])
    unread += f'{row["parts"]} parts, {row["levels"]} levels, '
    unread += f'{left} parts without a summary, ' if left else ''
  return (
      f'{done.job.number + 1:{len(str(total))}}/{total}  {row["id"]}: '
      f'{row["tokens_read"]:,} tokens read, {row["tokens_kept"]:,} kept, {unread}{selected}'
      f'{row["seconds"]:.1f} s (encoding {row["seconds_encoding"]:.1f}, '
      f'decoding {row["seconds_decoding"]:.1f}), peak memory '
      f'{memory.format_bytes(row["peak_memory_bytes"])}'
  )


def describe_end(jobs, failed, unread, options, has_report):
  """Returns the last line on stderr.

  Args:
    jobs: list of summaries.Job, one for each question about a document.
    failed: those of them that have no summary.
    unread: number of other documents, which could not be read.
    options: `write_summaries.Options`.
    has_report: whether the report was written.

  Returns:
    A line; '' for one document whose summary is on stdout, without a report.
  """
  every, lacking = (
      {
          (job.document.source, job.document.id, job.document.text)
          for job in some
      }
      for some in (jobs, failed)
  )
  done, left_out = len(every) - len(lacking), len(lacking) + unread
  places = []
  if options.output:
    places.append(f'summaries in {options.output}')
  if has_report:
    places.append(f'report in {options.report}')
  if done + left_out == 1 and not places:
    return ''
  counts = f'{done:,} document{"" if done == 1 else "s"} summarised'
  counts += f', {left_out:,} left out' if left_out else ''
  return '; '.join([counts, *places])
