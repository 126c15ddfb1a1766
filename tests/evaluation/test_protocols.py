"""Protocols equal Perl ROUGE-1.5.5; their words and stems."""

import hashlib
import json
from pathlib import Path
import random
import unicodedata

import pytest
from rouge_score import rouge_scorer

from locost_jax.data import pages
from locost_jax.data import text as text_lib
from locost_jax.data import words
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import protocols
from locost_jax.evaluation.metrics import rouge as rouge_lib
from tests.data.rows import read_jsonl

GOLDEN = Path(__file__).parents[1] / 'golden' / 'perl_rouge.jsonl'
ROWS = read_jsonl(GOLDEN)


def score(name, prediction, *references):
  return protocols.score(protocols.find(name), prediction, list(references))


@pytest.mark.parametrize('name', ['pagesum', 'simcas'])
def test_equals_perl_rouge(name):
  """ROUGE-1.5.5 rounds precision, recall and F1 to 5 digits."""
  assert len(ROWS) == 30
  for row in ROWS:
    found = score(name, row['prediction'], row['reference'])
    for key in protocols.TYPES:
      assert found[key] == pytest.approx(row[key], abs=0.002), key


def test_equals_perl_rouge_with_several_references():
  """Sums the counts of two to four references; the best one alone differs."""
  path = GOLDEN.with_name('perl_rouge_references.jsonl')
  rows = read_jsonl(path)
  assert {len(row['references']) for row in rows} == {2, 3, 4}
  best = protocols.find('pagesum')._replace(pooled=False)
  for row in rows:
    found = score('pagesum', row['prediction'], *row['references'])
    other = protocols.score(best, row['prediction'], row['references'])
    for key in protocols.TYPES:
      assert found[key] == pytest.approx(row[key], abs=0.002), key
    assert abs(other['rouge1'] - row['rouge1']) > 0.1


def test_google_is_not_perl_rouge():
  """Negative control: the golden file distinguishes the protocols."""
  found = [score('google', r['prediction'], r['reference']) for r in ROWS]
  distances = [abs(one['rouge1'] - r['rouge1']) for one, r in zip(found, ROWS)]
  assert sum(distance > 0.1 for distance in distances) > 15


# Examples from Porter (1980); words of three letters, which are not stemmed;
# irregular forms, which are looked up first; -ment loses -ent too, and two
# endings can go.
STEMS = """
caresses caress  ponies poni  agreed agre  plastered plaster
conflated conflat  hopping hop  falling fall  filing file  happy happi
relational relat  digitizer digit  hopefulness hope  triplicate triplic
electrical electr  adjustment adjust  adoption adopt  probate probat
cease ceas  controlled control  roll roll
was was  yield yield  yes yes  syzygy syzygi
were be  identified identify  identifies identifi  best well  children child
debussing debus  crasher crasher
agreements agreem  accidentally accid  congressional congress
istlzyyed istlzyi
"""


def test_stems_of_perl_rouge():
  words_and_stems = STEMS.split()
  for word, stem in zip(words_and_stems[::2], words_and_stems[1::2]):
    assert protocols.perl_stem(word) == stem


def test_each_exception_of_wordnet_is_stemmed_as_in_perl_rouge():
  pairs = [f'{form} {word}' for form, word in protocols.exceptions().items()]
  assert len(pairs) == 5930
  # Of the sorted entries of the script's database, as py-rouge 1.1 ships them.
  digest = hashlib.sha256('\n'.join(sorted(pairs)).encode()).hexdigest()
  assert (
      digest
      == '60481de138176c681c3cd2f7a2b0e1500ab27fbfff5929720c0511b41d8b9134'
  )
  for form, word in protocols.exceptions().items():
    assert protocols.perl_stem(form) == (word if len(form) > 3 else form)


@pytest.mark.parametrize(
    'text, expected',
    [
        ("Don't (stop) it.", 'do n t lrb stop rrb it'),
        ('They can\u2019t [2] wait.', 'thei ca n t lsb 2 rsb wait'),
        ('I cannot, gonna go.', 'i can not gon na go'),
        ("It's 1,200 well-known units", 'it s 1 200 well know unit'),
        ('Café \u2014', 'caf'),
    ],
)
def test_words_of_the_treebank(text, expected):
  assert protocols.treebank(text) == expected.split()


@pytest.mark.parametrize(
    'text, expected',
    [
        ('Привет, Мир', 'привет мир'),
        ('Straße \uff21\uff22', 'strasse ab'),
        (
            '\u0939\u093f\u0928\u094d\u0926\u0940 \u0939\u0948',
            '\u0939\u093f\u0928\u094d\u0926\u0940 \u0939\u0948',
        ),
        ('中文abcの', '中 文 abc の'),
        (
            '\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645',
            '\u0645\u06cc\u062e\u0648\u0627\u0647\u0645',
        ),
    ],
)
def test_words_of_any_script(text, expected):
  assert words.of_any_script(text) == expected.split()


def test_only_unicode_scores_other_scripts():
  text = 'Это доклад. Он длинный.'
  assert score('unicode', text, text)['rouge_mean'] == 100
  for name in protocols.PROTOCOLS.keys() - {'unicode'}:
    assert score(name, text, text)['rouge_mean'] == 0
    assert not protocols.counts(protocols.find(name), text)


def test_the_mean_is_over_the_kinds_of_the_protocol():
  pair = 'One dog. Two cats sat.', 'Two cats. One dog sat there.'
  found = score('locost', *pair)
  assert found['rougeL'] < found['rougeLsum']
  mean = lambda *keys: sum(found[f'rouge{key}'] for key in keys) / 3
  assert found['rouge_mean'] == pytest.approx(mean(1, 2, 'Lsum'))
  for name in 'booksum', 'scrolls':
    assert score(name, *pair) == found | {
        'rouge_mean': pytest.approx(mean(1, 2, 'L'))
    }


def test_signatures_differ():
  made = [protocols.signature(p, 1000) for p in protocols.PROTOCOLS.values()]
  assert made[0] == (
      'rouge|locost|stem:no|split:locost_jax-3|agg:max|rouge_score:0.1.2'
      '|n:1000|ci:95'
  )
  assert len(set(made)) == len(made)


def test_the_versions_of_the_splitter():
  """If this fails, raise protocols.RULES and put the new hash here."""
  texts = [row[side] for row in ROWS for side in ('prediction', 'reference')]
  assert (protocols.RULES_1, protocols.RULES) == (
      'locost_jax-1',
      'locost_jax-3',
  )
  for change, split, digest in (
      (str, protocols.RULES_1, 'e950c16433b4d440'),
      (str, protocols.RULES, 'e950c16433b4d440'),
      (str.lower, protocols.RULES, '24e72bec515c347f'),
  ):
    found = [
        protocols.on_lines(change(text), split).split('\n') for text in texts
    ]
    found = hashlib.sha256(json.dumps(found).encode()).hexdigest()
    assert found.startswith(digest)


# --- Sentences: the same numbers as rouge_score ------------------------------


def random_text(draw, newlines):
  """Makes a text of short sentences, some lines of which are blank."""
  made = []
  for _ in range(draw.randint(1, 9)):
    found = draw.choices('the The cats sat running ran on 2 café'.split(), k=5)
    made.append(' '.join(found) + draw.choice(['.', '!', ' .', '', '?', ' -']))
  if newlines:
    made.insert(1, draw.choice(['', '--', '\r', ' ']))
  return ('\n' if newlines else ' ').join(made)


@pytest.mark.parametrize('newlines', [True, False])
@pytest.mark.parametrize('name, stemmer', [('locost', False), ('google', True)])
def test_equals_rouge_score(name, stemmer, newlines):
  """To the last bit; without newlines, after those of our splitter."""
  draw, lower = random.Random(0), 0
  scorer = rouge_scorer.RougeScorer(protocols.TYPES, use_stemmer=stemmer)
  for i in range(200):
    pair = [random_text(draw, newlines) for _ in range(2)]
    if i % 2:
      pair = [text.lower() for text in pair]
    lines = pair
    if not newlines:
      lines = ['\n'.join(text_lib.split_sentences(text)) for text in pair]
      lower += i % 2 and '\n' in lines[0]
    expected = scorer.score(lines[1], lines[0])
    found = score(name, *pair)
    for key in protocols.TYPES:
      assert found[key] == 100 * expected[key].fmeasure, (key, pair)
  assert newlines or lower > 50


def test_lines_are_sentences():
  """Three lines without full stops; rules that join lines give 48.28."""
  prediction = (
      'we study long inputs with state spaces\n'
      'the model reads whole books\n'
      'results improve on four tasks'
  )
  reference = (
      'results improve on three tasks and four data sets\n'
      'the model reads long books\n'
      'we study state spaces'
  )
  found = score('google', prediction, reference)
  assert found['rougeLsum'] > found['rougeL'] + 10
  lines = [text.split('\n') for text in (prediction, reference)]
  for name in 'locost', 'unicode':
    alone = score(name, *map('\n\n'.join, lines))
    assert score(name, prediction, reference) == alone
  joined = [' '.join(side) for side in lines]
  assert score('google', *joined)['rougeLsum'] < found['rougeLsum']
  # As Perl ROUGE's protocols have done since their first release.
  assert score('pagesum', prediction, reference) == score('pagesum', *joined)


def test_a_text_without_capitals_has_sentences():
  text = 'we go on . they said no ! why ? fig. 3 of smith et al. (see below) .'
  expected = [
      'we go on .',
      'they said no !',
      'why ?',
      'fig. 3 of smith et al. (see below) .',
  ]
  assert protocols.on_lines(text, protocols.RULES).split('\n') == expected
  assert text_lib.split_sentences(text) == expected
  for other in f'NASA: {text}', f'Да, {text}':
    assert len(text_lib.split_sentences(other)) == 1
  # Records are made from these, and stay as they were.
  assert len(text_lib.sentence_spans(text)) == 1
  assert pages.spatial(text, 3)[:2] == ['', '']


# --- Scripts -----------------------------------------------------------------


@pytest.mark.parametrize(
    'text, name',
    [
        ('The report of 2020.', 'locost'),
        ('Le café est là, dit le rapport de la ville.', 'locost'),
        ('1 234', 'locost'),
        ('', 'locost'),
        ('Füße für Übungen früh.', 'unicode'),
        ('Завод 2020, BERT', 'unicode'),
        ('桥在2020年建成', 'unicode'),
        ('Ο BERT είναι', 'unicode'),
    ],
)
def test_auto_chooses_by_the_letters_of_whole_words(text, name):
  """a-z cuts a word at each other letter: none of its letters is counted."""
  for form in 'NFC', 'NFD':
    text = unicodedata.normalize(form, text)
    assert protocols.choose([text]) == name
    if text:
      is_counted = protocols.counts(protocols.find('google'), text)
      assert is_counted == (name == 'locost')
      assert protocols.counts(protocols.find('unicode'), text)


def rouge(predictions, references):
  """Returns {'rouge1': mean F1 x 100, ...}, as an evaluation measures it."""
  metrics = [rouge_lib.of_protocol()]
  return metric.score(metrics, predictions, references)


def test_the_best_of_several_references_counts():
  """The best reference is chosen for each kind of ROUGE."""
  several = ['the cat sat down there', 'sat the cat down']
  found = rouge(['the cat sat down', 'x'], [several, 'x'])
  single = [rouge(['the cat sat down'], [text]) for text in several]
  for name in protocols.TYPES:
    assert found[name] == pytest.approx(
        (max(score[name] for score in single) + 100 * (name != 'rouge2')) / 2
    )
  assert single[0]['rouge1'] < single[1]['rouge1']
  assert single[0]['rougeL'] > single[1]['rougeL']
