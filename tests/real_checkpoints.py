"""Runs public checkpoints next to transformers; prints a table.

  python -m tests.real_checkpoints [NAME ...]   # a network, extra peers

NAME: org/name on the Hub, or a directory. Each side has a process of its own,
on the CPU, in float32. The table is for docs/models.md. Beams have the rules of
transformers 4.30 (see `generation.decode`); version 5 can differ by rule.
"""

from concurrent import futures
import datetime
import multiprocessing
import os
from pathlib import Path
import sys
import time

import numpy as np

import locost_jax
from locost_jax.config import versions
from locost_jax.devices import memory
from locost_jax.hugging_face import hub

NAMES = """pszemraj/long-t5-tglobal-base-16384-book-summary facebook/bart-large-cnn
allenai/led-large-16384-arxiv allenai/PRIMERA google/pegasus-x-base
google/bigbird-pegasus-large-arxiv google/pegasus-cnn_dailymail facebook/bart-base
google/flan-t5-base csebuetnlp/mT5_multilingual_XLSum facebook/mbart-large-50""".split()
TEXT = ' '.join((Path(__file__).parents[1] / 'LICENSE').read_text().split())
LENGTH, WRITTEN = 800, 128  # most tokens of the text, of a summary
COLUMNS = """checkpoint | ids of the text | logits: difference, largest | greedy
| own settings | seconds: ours, theirs | peak GB: ours, theirs""".split('\n')


def ours(directory, language):
  """Returns what locost_jax reads and writes, a dict."""
  s = locost_jax.load(directory, language=language)
  separator = s.config.separator_id or -1  # PRIMERA: two documents
  text = TEXT[:2000] + '<doc-sep>' * (separator >= 0) + TEXT[2000:]
  ids = np.array([s.tokenize(text, LENGTH)])
  targets = np.append([[s.settings.start_id]], ids[:, :31], 1)
  limit = min(s.settings.max_length, WRITTEN)
  found = dict(text=s.prefix + text, ids=ids, targets=targets, limit=limit)
  found |= dict(logits=s.logits(ids, targets), separator=separator)
  more = dict(settings=s.settings, max_length=limit)
  return found | measured(lambda **beams: s.generate(ids, **more, **beams))


def theirs(directory, language, given):
  """Returns the same of transformers, which reads the ids given."""
  import torch
  import transformers

  more = dict(src_lang=language) if language else {}
  tokenizer = transformers.AutoTokenizer.from_pretrained(directory, **more)
  read = tokenizer(given['text'], truncation=True, max_length=LENGTH).input_ids
  torch.set_grad_enabled(False)
  load = transformers.AutoModelForSeq2SeqLM.from_pretrained
  model = load(directory, dtype=torch.float32)
  ids = torch.tensor(given['ids'])
  inputs = dict(input_ids=ids, attention_mask=torch.ones_like(ids))
  if model.config.model_type == 'led':
    marks = (ids == given['separator']) | (torch.arange(ids.shape[1]) == 0)
    inputs['global_attention_mask'] = marks.long()
  more = dict(max_new_tokens=given['limit'])
  if language:
    more['forced_bos_token_id'] = tokenizer.convert_tokens_to_ids(language)
  more |= inputs
  found = measured(
      lambda **beams: model.generate(**more, **beams)[:, 1:].numpy()
  )
  inputs['decoder_input_ids'] = torch.tensor(given['targets'])
  found['logits'] = model(**inputs).logits.numpy()
  return found | dict(ids=np.array([read]))


def measured(write):
  """Returns tokens, greedy and by settings, its seconds, and peak bytes."""
  found = dict(greedy=write(num_beams=1), own=write())  # compiles
  start, _ = time.monotonic(), write()
  seconds = time.monotonic() - start
  return found | dict(seconds=seconds, peak=memory.peak_host_bytes())


def cells(a, b):
  """Returns the columns behind the name: what is ours next to theirs."""

  def same(key):
    x, y = a[key][0].tolist(), b[key][0].tolist()
    return 'equal' if x == y else f'first {len(os.path.commonprefix([x, y]))}'

  off, most = np.abs(a['logits'] - b['logits']).max(), np.abs(b['logits']).max()
  both = lambda key, unit: ', '.join(f'{x[key] / unit:.2f}' for x in (a, b))
  tokens = same('ids'), f'{off:.1e}, {most:.1f}', same('greedy'), same('own')
  return *tokens, both('seconds', 1), both('peak', 1e9)


def compare(name):
  """Returns the columns of a checkpoint behind its name, or its error."""
  try:
    place = hub.find_directory(name, True), 'en_XX' if 'mbart' in name else None
    spawn = dict(mp_context=multiprocessing.get_context('spawn'))
    with futures.ProcessPoolExecutor(1, max_tasks_per_child=1, **spawn) as pool:
      found = pool.submit(ours, *place).result()
      return cells(found, pool.submit(theirs, *place, found).result())
  except Exception as error:  # the others go on
    line = f'{type(error).__name__}: {error}'.splitlines()[0]
    return line.replace('|', '/'), *[''] * 5


def main(names):
  os.environ['JAX_PLATFORMS'] = 'cpu'  # of the processes
  found = versions.installed(['locost_jax', 'jax', 'transformers', 'torch'])
  print(f'{datetime.date.today()}, {found}:\n\n| {" ".join(COLUMNS)} |')
  print('|' + '---|' * 7)
  for name in names or NAMES:
    print(f'| {" | ".join((name, *compare(name)))} |', flush=True)


if __name__ == '__main__':
  main(sys.argv[1:])
