"""Finds pairs of sentences that a summary fuses, and their distances.

  python -m papers.interdependent --task=arxiv --documents=1000
  python -m papers.interdependent --config=configs/finetune.py \\
      --config.data.train_files='data/*.jsonl'

This is appendix A of PageSum (Liu et al., EMNLP 2022). One pair of sentences of
a document contributes most to a sentence h of its summary:

  (i, j) = argmax R(h, s_i + s_j)                                (equation 14)

The two are interdependent if each overlaps h and contributes words that the
other lacks:

  R(h, s) > 20  and  R(h, s_i + s_j) - R(h, s) > 10,   s in {s_i, s_j}
                                                      (equations 15 and 16)

R is the recall of ROUGE-1 in percent, words stemmed; the paper does not say
which ROUGE it uses. A model that reads pages separately can only fuse sentences
of one page, so the command prints the distances of the pairs as a share of the
sentences of the document. --output gets the pairs as JSON, of which
`papers.plot interdependent` draws figure 4.
"""

import collections
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rouge_score import tokenizers

from locost_jax import files
from locost_jax.config import commands
from locost_jax.config.progress import Progress
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import pages
from locost_jax.data import tasks
from locost_jax.data import text as text_lib
from locost_jax.errors import InputError

LEAST, GAIN = 20.0, 10.0  # t1 and t2 of the paper, in percent
BINS = 10  # of the distances
_TOKENIZER = tokenizers.DefaultTokenizer(use_stemmer=True)


class Pair(NamedTuple):
  """Two sentences of a document that one sentence of its summary fuses."""

  target: int  # the sentence of the summary
  first: int
  second: int
  recall: float  # of both together


def find_pairs(document, summary):
  """Finds the interdependent sentences of a document.

  Args:
    document, summary: lists of their sentences.

  Returns:
    List of Pair, at most one for each sentence of the summary, the first if tied.
  """
  sources, found = [_count(sentence) for sentence in document], []
  for h, target in enumerate(map(_count, summary)):
    words = list(target)
    total = sum(target.values())
    if not total or len(sources) < 2:
      continue
    # Counts of each word of h: [S, W] in each sentence; [W] in h.
    counts = np.array([[source[word] for word in words] for source in sources])
    wanted = np.array([target[word] for word in words])
    alone = 100 * np.minimum(counts, wanted).sum(1) / total
    best = None
    for i in range(len(sources) - 1):
      both = np.minimum(counts[i] + counts[i + 1 :], wanted).sum(1)
      j = int(both.argmax())
      if best is None or both[j] > best[0]:
        best = both[j], i, i + 1 + j
    recall, i, j = 100 * best[0] / total, *best[1:]
    weaker, stronger = sorted((alone[i], alone[j]))
    if weaker > LEAST and recall - stronger > GAIN:
      found.append(Pair(h, i, j, float(recall)))
  return found


def _count(sentence):
  """Counts the words of a sentence, stemmed as in rouge_score."""
  return collections.Counter(_TOKENIZER.tokenize(sentence))


def define_flags(values, argv):
  """Defines this command's flags."""
  commands.define_config(values, argv, 'configs/default.py')
  table = {
      'split': ('validation', 'which split'),
      'documents': (0, 'read only the first N; 0: all'),
      'output': ('runs/interdependent', 'DIR for TASK.json'),
      'format': ('text', 'what goes to stdout', commands.FORMATS),
  }
  commands.define(values, table | commands.TASK)


def main(values, arguments):
  """Runs the command."""
  commands.expect_flags_only(arguments)
  files.check_directory('--output', values.output)
  config, _ = commands.get_config(values)
  tasks.check(config)
  for task, member in tasks.members(config).items():
    result = analyse(task, member, values.split, values.documents)
    path = Path(values.output) / f'{task}.json'
    files.write(path, json.dumps(result, indent=1))
    print(json.dumps(result) if values.format == 'json' else text(result))


def analyse(task, config, split, max_documents=0):
  """Finds the pairs of a split, in its first documents (0: in all).

  Returns:
    dict of task, split, documents, summary_sentences, pairs (dicts of id, and
    the fields of Pair) and distances (one for each pair: (second - first) /
    sentences of the document).
  """
  found = corpus_lib.corpus(config)
  if found.gsg is not None:
    raise InputError(
        f'{task}: gap sentences have no summaries; expected a task with them'
    )
  if split not in found.splits:
    raise InputError(
        f'--split={split}: {task} has no such split; expected '
        f'{" or ".join(found.splits)}'
    )
  pairs, distances, documents, sentences = [], [], 0, 0
  progress = Progress(seconds=10.0)
  for shard in found.splits[split]:
    for row in found.read(split, shard):
      if documents == max_documents > 0:
        break
      progress.write([f'{task} {split}: {documents} documents'])
      source = row['inputs']
      if config.data.pages:
        source = '\n\n'.join(pages.texts(json.loads(source)))
      source = text_lib.split_sentences(source)
      summary = text_lib.split_sentences(row['targets'])
      own = find_pairs(source, summary)
      pairs += [dict(id=row['id'], **pair._asdict()) for pair in own]
      distances += [(pair.second - pair.first) / len(source) for pair in own]
      documents, sentences = documents + 1, sentences + len(summary)
  progress.wipe()
  return dict(
      task=task,
      split=split,
      documents=documents,
      summary_sentences=sentences,
      pairs=pairs,
      distances=distances,
  )


def text(result):
  """Formats the result of `analyse` as a histogram of distances."""
  distances = result['distances']
  lines = [
      f'{result["task"]} {result["split"]}: {result["documents"]:,} documents, '
      f'{result["summary_sentences"]:,} summary sentences, {len(distances):,} '
      'fuse two interdependent sentences',
      'distance   pairs',
  ]
  counts, edges = np.histogram(distances, BINS, (0, 1))
  for count, low, high in zip(counts, edges, edges[1:]):
    bar = '█' * round(40 * count / max(counts.max(), 1))
    lines.append(f'{low:.1f} - {high:.1f}  {count:5}  {bar}'.rstrip())
  return '\n'.join(lines)


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
