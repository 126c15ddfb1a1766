"""Gap sentences: documents per second and core, against rouge_score.

The documents come from the built-in corpus, joined or split between sentences
to about `length` words. Everything runs in one thread, without JAX.
"""

import os
import tempfile
import time

from rouge_score import rouge_scorer

from locost_jax.benchmarks import timing
from locost_jax.data import builtin_corpus
from locost_jax.data import gsg
from locost_jax.data import text as text_lib
from locost_jax.vocabularies import sentencepiece_training

BATCH = 256  # documents per step in the paper
WORDS = 50_000  # total words of the documents of one length
VOCABULARY = 4000


def prepare(spec, report):
  """Returns (known, run), see `processes.serve`; run() returns a row.

  The row's times are seconds per document: 'choose', sentence selection, and
  'choose, sequential'; 'loop', the same selection with rouge_score; 'make',
  source and target from a text; 'make and tokenise'. ratio: time of the loop /
  ours. documents_per_second and cores (for BATCH documents per second) refer to
  'make and tokenise'.
  """

  def run():
    report('making documents')
    documents = make_documents(spec['length'])
    texts = [' '.join(sentences) for sentences in documents]
    encode = _make_vocabulary(texts).encode
    first = documents[0]

    def choose(strategy):
      return lambda: _per_document(
          lambda d: gsg.select_sentences(d, strategy=strategy), documents
      )

    def tokenise(text):
      for part in gsg.gap_sentences(text) or ():
        encode(part)

    calls = {
        'choose': choose('independent'),
        'choose, sequential': choose('sequential'),
        'loop': lambda: _per_document(loop, [first]),
        'make': lambda: _per_document(gsg.gap_sentences, texts),
        'make and tokenise': lambda: _per_document(tokenise, texts),
    }
    times = timing.time_interleaved(
        calls, spec['repeats'], spec['seconds'], report
    )
    seconds = timing.medians(times)
    own = timing.medians(
        {
            'first': [
                _per_document(gsg.select_sentences, [first]) for _ in range(5)
            ]
        }
    )
    return dict(
        times=times,
        seconds=seconds,
        documents=len(documents),
        ratio=seconds['loop'] / own['first'],
        same=loop(first) == gsg.select_sentences(first),
        documents_per_second=1 / seconds['make and tokenise'],
        cores=BATCH * seconds['make and tokenise'],
        platform='cpu',
        device='one thread',
    )

  return dict(platform='cpu', device='one thread'), run


def _per_document(run, documents):
  start = time.perf_counter()
  for document in documents:
    run(document)
  return (time.perf_counter() - start) / len(documents)


def loop(sentences, ratio=0.2):
  """Does `gsg.select_sentences` in a plain loop over rouge_score's ROUGE-1."""
  scorer = rouge_scorer.RougeScorer(['rouge1'], use_stemmer=False)
  scores = []
  for j, sentence in enumerate(sentences):
    rest = '\n'.join(sentences[:j] + sentences[j + 1 :])
    score = scorer.score(target=rest, prediction=sentence)['rouge1'].fmeasure
    scores.append(round(score, 12))
  best = sorted(range(len(scores)), key=lambda j: (-scores[j], j))
  return sorted(best[: int(ratio * len(sentences) + 1e-9)])


def make_documents(length):
  """Makes lists of sentences of at least `length` words, WORDS in total."""
  documents, sentences, words = [], [], 0
  most = max(1, WORDS // length)
  for row in builtin_corpus.read_rows('train', gap_sentences=True):
    for sentence in text_lib.split_sentences(row['text']):
      sentences.append(sentence)
      words += len(sentence.split())
      if words >= length:
        documents.append(sentences)
        sentences, words = [], 0
        if len(documents) == most:
          return documents
  return documents or [sentences]


def _make_vocabulary(texts):
  with tempfile.TemporaryDirectory() as directory:
    return sentencepiece_training.train(
        texts, os.path.join(directory, 'model'), VOCABULARY
    )
