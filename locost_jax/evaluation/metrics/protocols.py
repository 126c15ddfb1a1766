"""Protocols: how a paper or a package computes ROUGE, one object each.

A protocol hands a tokenizer and a sentence splitter to rouge_score's
`RougeScorer`, and says how several references count. Each of these changes
ROUGE by points; a protocol's signature names them.
"""

import functools
from importlib import resources
import importlib.metadata
import re
from typing import Callable, NamedTuple

from locost_jax.data import text as text_lib
from locost_jax.data import words
from locost_jax.errors import InputError
from locost_jax.errors import suggest
from locost_jax.evaluation.metrics import intervals

TYPES = ('rouge1', 'rouge2', 'rougeL', 'rougeLsum')
MEAN, GEOMETRIC = 'rouge_mean', 'rouge_geometric_mean'
# Column titles of tables, in this order.
TITLES = {
    'rouge1': 'R-1',
    'rouge2': 'R-2',
    'rougeL': 'R-L',
    'rougeLsum': 'R-Lsum',
    MEAN: 'mean',
    GEOMETRIC: 'geometric mean',
}
AUTO = 'auto'  # config.eval.protocol: 'unicode' or 'locost', see `choose`
# Sentence splitters. Where a text has newlines, its lines are its sentences,
# except for RULES_1, which joins hard-wrapped lines.
RULES_1, RULES = 'locost_jax-1', 'locost_jax-3'
# Endings that Perl ROUGE's stemmer removes in Porter's step 4.
_STEP_4 = (
    'al ance ence er ic able ible ant ement ou ism ate iti ous ive ize'
).split()
_BRACKETS = str.maketrans(
    {
        '(': ' lrb ',
        ')': ' rrb ',
        '[': ' lsb ',
        ']': ' rsb ',
        '{': ' lcb ',
        '}': ' rcb ',
    }
)
# Words that the Penn Treebank splits in two, but ROUGE's tokeniser does not.
_NEGATIONS = re.compile(r"(?<=\w)(?=n['\u2019]t\b)")
_COMPOUNDS = re.compile(
    r'\b(can(?=not\b)|gon(?=na\b)|got(?=ta\b)|wan(?=na\b)|(?:gim|lem)(?=me\b))'
)


def latin_stemmed(text):
  """Returns the words of rouge_score with its stemmer, NLTK's Porter."""
  return _stemming_tokenizer().tokenize(text)


@functools.cache
def _stemming_tokenizer():
  from rouge_score import tokenizers  # imports NLTK

  return tokenizers.DefaultTokenizer(use_stemmer=True)


def treebank(text):
  """Returns the words of Perl ROUGE-1.5.5 -m after Penn Treebank tokens.

  Stanford's tokeniser (CoreNLP 3.8) writes brackets as -LRB-, -RRB- and so on,
  which Perl ROUGE reads as the words lrb and rrb. ROUGE drops all punctuation,
  so the tokeniser's only other effect is to split contractions.
  """
  text = _NEGATIONS.sub(' ', text.lower().translate(_BRACKETS))
  found = words.latin(_COMPOUNDS.sub(r'\1 ', text))
  return [perl_stem(word) for word in found]


@functools.cache
def exceptions():
  """Returns {irregular form: word} of WordNet 2.0."""
  file = resources.files(__package__) / 'wordnet' / 'exceptions.txt'
  lines = map(str.split, file.read_text('utf-8').splitlines())
  return {form: word for word, *forms in lines for form in forms}


@functools.cache
def perl_stem(word):
  """Returns the stem of a word in lower case, as Perl ROUGE-1.5.5 -m has it.

  These are WordNet's exceptions, then Porter (1980).
  Only words of more than three letters are stemmed. `wordnet/exceptions.txt` has
  the 5,930 entries of the script's WordNet-2.0.exc.db, each line a word and its
  irregular forms. Where WordNet lists a form twice, the entry read last counts;
  the order adjectives, adverbs, nouns, verbs gives the published database ("best"
  is "well"; "older" is missing).
  """
  if len(word) <= 3:
    return word
  return exceptions().get(word) or _porter().stem(word)


@functools.cache
def _porter():
  """Returns Porter's stemmer as the script has it."""
  from nltk.stem import porter  # takes a second

  class Porter(porter.PorterStemmer):

    def _ends_double_consonant(self, word):
      return not word.endswith('yy') and super()._ends_double_consonant(word)

    def _step4(self, word):
      # The script removes up to three endings, one after the other.
      is_long = lambda stem: self._measure(stem) > 1
      # The s or t before -ion is part of the stem.
      after_s_or_t = lambda stem: stem.endswith(('s', 't')) and is_long(stem)
      for rules in (
          [(ending, '', is_long) for ending in _STEP_4],
          [('ment', '', is_long)],
          [('ent', '', is_long), ('ion', '', after_s_or_t)],
      ):
        word = self._apply_rule_list(word, rules)
      return word

  return Porter(Porter.MARTIN_EXTENSIONS)


class Protocol(NamedTuple):
  """One way to compute ROUGE: the tokenizer of a `RougeScorer`."""

  name: str  # in --protocol
  what: str  # one line about it
  tokenize: Callable  # text -> list of words
  mean_of: tuple  # the kinds of ROUGE that `rouge_mean` averages
  tokens: str = 'rouge_score'  # name of the tokeniser, for the signature
  stem: str = 'no'  # name of the stemmer, for the signature
  split: str = RULES
  # Whether the counts of several references are summed (Perl ROUGE, formula A);
  # else the best reference counts.
  pooled: bool = False
  geometric: bool = False  # whether to add the geometric mean of the means


# The kinds of ROUGE in a mean: the third by sentences, or of whole texts.
_SENTENCES = 'rouge1', 'rouge2', 'rougeLsum'
_WHOLE = 'rouge1', 'rouge2', 'rougeL'
_LOCOST = Protocol(
    name='locost',
    what='rouge_score, no stemmer; used by LOCOST and main --evaluate',
    tokenize=words.latin,
    mean_of=_SENTENCES,
)
_PAGESUM = Protocol(
    name='pagesum',
    what='Perl ROUGE-1.5.5 -m on Treebank tokens, R-Lsum; PageSum',
    tokenize=treebank,
    mean_of=_SENTENCES,
    tokens='ptb:1|ROUGE:1.5.5',
    stem='perl',
    split=RULES_1,
    pooled=True,
)
PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        _LOCOST,
        _LOCOST._replace(
            name='google',
            what='rouge_score with its stemmer; used by most papers since 2020',
            tokenize=latin_stemmed,
            stem='nltk',
        ),
        _PAGESUM,
        _PAGESUM._replace(
            name='simcas',
            what='as pagesum, but R-L except on arXiv and PubMed; SimCAS',
            mean_of=_WHOLE,
        ),
        _LOCOST._replace(
            name='scrolls',
            what='rouge_score, no stemmer, geometric mean; SCROLLS',
            mean_of=_WHOLE,
            geometric=True,
        ),
        _LOCOST._replace(
            name='booksum',
            what='rouge_score, no stemmer, R-L instead of R-Lsum',
            mean_of=_WHOLE,
        ),
        _LOCOST._replace(
            name='unicode',
            what='words of any script, for texts not in Latin letters',
            tokenize=words.of_any_script,
            tokens='words:1',
        ),
    )
}


def find(name, key='--protocol'):
  """Returns the protocol of a name (AUTO: 'locost'), or raises an InputError.

  Args:
    key: the flag or config key that has the name, for messages.
  """
  if name == AUTO:
    name = 'locost'
  if name not in PROTOCOLS:
    raise InputError(
        f'{key}={name}: no such protocol'
        f'{suggest(name, PROTOCOLS) or ":"} expected one of '
        f'{", ".join(PROTOCOLS)}'
    )
  return PROTOCOLS[name]


def choose(texts):
  """Returns the name of the protocol that AUTO stands for, by references."""
  return 'locost' if words.is_latin(texts) else 'unicode'


def counts(protocol, text):
  """Whether a protocol counts a word, and half of the letters, of a text."""
  if not protocol.tokenize(text):
    return False
  is_any_script = protocol.tokenize is words.of_any_script
  return is_any_script or words.is_latin([text])


def on_lines(text, split):
  """Returns a text with a sentence a line, by RULES_1 or RULES."""
  if '\n' in text and split != RULES_1:
    return text
  lower_case = None if split == RULES else False
  return '\n'.join(text_lib.split_sentences(text, lower_case))


def score(protocol, prediction, references):
  """Returns {kind of ROUGE, or MEAN: F1 x 100} of one document.

  Args:
    references: list of str; at least one.
  """
  from rouge_score import rouge_scorer  # imports NLTK

  scorer = rouge_scorer.RougeScorer(TYPES, tokenizer=protocol)
  ours, *theirs = (
      on_lines(text, protocol.split) for text in (prediction, *references)
  )
  found = [scorer.score(text, ours) for text in theirs]
  if protocol.pooled:
    sizes = [len(protocol.tokenize(text)) for text in (ours, *theirs)]
    scores = {key: 100 * _pooled(found, sizes, key) for key in TYPES}
  else:
    scores = {
        key: 100 * max(one[key].fmeasure for one in found) for key in TYPES
    }
  chosen = [scores[key] for key in protocol.mean_of]
  scores[MEAN] = sum(chosen) / len(chosen)
  return scores


def _pooled(found, sizes, key):
  """Returns the F1 of counts that are summed over references.

  rouge_score returns no counts: hits = precision x words. `sizes` has the words
  of the prediction and of each reference.
  """
  from rouge_score import scoring

  ours, *theirs = (max(n - (key == 'rouge2'), 0) for n in sizes)
  hits = sum(round(one[key].precision * ours) for one in found)
  return scoring.fmeasure(
      hits / max(ours * len(found), 1), hits / max(sum(theirs), 1)
  )


def signature(protocol, pairs):
  """Returns the signature of scores: 'rouge|locost|stem:no|...|n:1000|ci:95'."""
  tokens = protocol.tokens
  if tokens == 'rouge_score':
    tokens += f':{importlib.metadata.version("rouge-score")}'
  agg = 'pooled' if protocol.pooled else 'max'
  return (
      f'rouge|{protocol.name}|stem:{protocol.stem}|split:{protocol.split}|'
      f'agg:{agg}|{tokens}|n:{pairs}|ci:{intervals.LEVEL}'
  )


def method(signature):
  """Returns a signature up to the number of pairs.

  Scores can be compared if this part is equal.
  """
  return signature.partition('|n:')[0]
