"""Gap sentences: documents of --lengths words per second, in one thread.

The documents come from the built-in corpus, joined or split between sentences.
"""

import os
import tempfile

from rouge_score import rouge_scorer

from locost_jax.data import builtin_corpus
from locost_jax.data import gsg
from locost_jax.data import text as text_lib
from locost_jax.vocabularies import sentencepiece_training

WORDS = 50_000  # total words of the documents of one length
VOCABULARY = 4000


def prepare(spec):
  """Returns the calls, see `programs`.

  'choose' sentences; 'choose, sequential'; 'make' source and target from a
  text; 'make and tokenise'. For the first document alone also 'choose, first'
  and 'loop', the same choice with rouge_score.
  """
  documents = make_documents(spec['length'])
  texts = [' '.join(sentences) for sentences in documents]
  with tempfile.TemporaryDirectory() as directory:
    path = os.path.join(directory, 'model')
    encode = sentencepiece_training.train(texts, path, VOCABULARY).encode
  sequential = lambda d: gsg.select_sentences(d, strategy='sequential')
  tokenise = lambda text: [encode(p) for p in gsg.gap_sentences(text) or ()]
  each = lambda run, items: (
      lambda: [run(item) for item in items],
      dict(documents=len(items)),
  )
  return {
      'choose': each(gsg.select_sentences, documents),
      'choose, sequential': each(sequential, documents),
      'make': each(gsg.gap_sentences, texts),
      'make and tokenise': each(tokenise, texts),
      'choose, first': each(gsg.select_sentences, documents[:1]),
      'loop': each(loop, documents[:1]),
  }


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
  for row in builtin_corpus.read_rows('train', gap_sentences=True):
    for sentence in text_lib.split_sentences(row['text']):
      sentences.append(sentence)
      words += len(sentence.split())
      if words >= length:
        documents.append(sentences)
        sentences, words = [], 0
        if len(documents) == max(1, WORDS // length):
          return documents
  return documents or [sentences]
