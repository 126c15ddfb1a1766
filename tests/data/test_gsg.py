"""Gap sentences equal plain loops over rouge_score."""

import time

import pytest
from rouge_score import rouge_scorer

from locost_jax.data import corpus as corpus_lib
from locost_jax.data import gsg
from locost_jax.data import text as text_lib

RUSSIAN = (
    'Снег выпал в 2020 году. Завод стоит. Кот спит дома. '
    'Завод и кот стоит и спит.'
)
_SCORER = rouge_scorer.RougeScorer(['rouge1'], use_stemmer=False)


def _f1(part, rest):
  score = _SCORER.score(target='\n'.join(rest), prediction='\n'.join(part))
  return round(score['rouge1'].fmeasure, 12)


def loop_independent(sentences, ratio):
  scores = [
      _f1([s], sentences[:j] + sentences[j + 1 :])
      for j, s in enumerate(sentences)
  ]
  best = sorted(range(len(sentences)), key=lambda j: (-scores[j], j))
  return sorted(best[: int(ratio * len(sentences) + 1e-9)])


@pytest.fixture(scope='module')
def documents():
  rows = corpus_lib.built_in_rows('train', gap_sentences=True)
  return [text_lib.split_sentences(row['text']) for row in rows]


@pytest.mark.parametrize('ratio', [0.2, 0.45])
def test_independent_equals_the_rouge_loop(documents, ratio):
  for sentences in documents[:8]:
    assert gsg.select_sentences(sentences, ratio) == loop_independent(
        sentences, ratio
    )


def test_random_depends_only_on_document_and_seed(documents):
  choose = lambda seed: [
      gsg.select_sentences(s, 0.3, 'random', seed) for s in documents[:40]
  ]
  assert choose(0) == choose(0) != choose(1)
  # All positions are equally likely, so their mean is near the middle.
  places = [
      j / len(s) for s, chosen in zip(documents, choose(0)) for j in chosen
  ]
  assert abs(sum(places) / len(places) - 0.5) < 0.05


def test_ties_go_to_the_earlier_sentence():
  sentences = ['A b.', 'C d.', 'A b.', 'C d.', 'E f.']
  assert gsg.select_sentences(sentences, 0.4) == [0, 1]
  # A word counts at most as often as it occurs in the rest.
  sentences = ['x', 'x y', 'y z q r s', 'q q q q q q', 'z']
  assert (
      gsg.select_sentences(sentences) == loop_independent(sentences, 0.2) == [2]
  )


def test_number_of_sentences_is_floating_point_safe():
  assert 0.29 * 100 < 29
  sentences = [f'Sentence {j}.' for j in range(100)]
  assert len(gsg.select_sentences(sentences, 0.29)) == 29
  assert len(gsg.select_sentences(sentences[:4])) == 0
  assert gsg.select_sentences([]) == []
  assert gsg.select_sentences(['...'] * 5, 0.2) == [0]
  assert gsg.select_sentences(sentences, 0.03, 'lead') == [0, 1, 2]


def test_linear_time(documents):
  """A plain loop reads the rest of the document for each sentence."""
  sentences = sum(documents, [])
  assert len(sentences) > 4000

  def work(count):
    start = time.thread_time_ns()
    gsg.select_sentences(sentences[:count], 0.2)
    return time.thread_time_ns() - start

  work(400)  # warm-up
  short = min(work(400) for _ in range(5))
  assert work(4000) < 40 * short  # quadratic time would be 100 times


def test_source_and_target_share_the_document():
  text = (
      'The cat sat on the mat. It was black. The dog saw the cat on the '
      'mat.\n\nNobody cared.\nThe end came.'
  )
  source, target = gsg.gap_sentences(text, 0.2)
  assert target == 'The dog saw the cat on the mat.'
  assert source == (
      'The cat sat on the mat. It was black.\n\nNobody cared.\nThe end came.'
  )
  source, target = gsg.gap_sentences(text, 0.4, mask='<extra_id_0>')
  assert target == ('The cat sat on the mat. The dog saw the cat on the mat.')
  assert source == (
      '<extra_id_0> It was black. <extra_id_0>\n\n'
      'Nobody cared.\nThe end came.'
  )


def test_no_blanks_between_sentences_of_chinese():
  text = '雪。他说：“好。”“走！”雪停了。They left. 夜。Later on.\n雨。风雪。'
  made = gsg.gap_sentences(text, 0.5, 'random', spaced=False)
  assert made == (
      '雪。“走！” They left.\n雨。风雪。',
      '他说：“好。”雪停了。夜。 Later on.',
  )
  older = gsg.gap_sentences(text, 0.5, 'random')
  assert older[1] == '他说：“好。” 雪停了。 夜。 Later on.'


def test_too_short_is_none():
  assert gsg.gap_sentences('One. Two. Three. Four.') is None
  assert gsg.gap_sentences('') is None
  assert gsg.gap_sentences('Only one sentence here.', ratio=1.0) is None


def test_words_of_another_script_count():
  """The last sentence shares its words with two others."""
  sentences = text_lib.split_sentences(RUSSIAN)
  assert gsg.select_sentences(sentences, 0.25) == [3]
  mixed = [*sentences, *['Plain English words, many of them.'] * 9]
  a_to_z = gsg.select_sentences(mixed, 1 / 13)
  assert a_to_z != [3]  # most letters are a-z
