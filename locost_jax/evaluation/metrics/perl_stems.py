"""The stemmer of Perl ROUGE-1.5.5 -m: Porter (1980) with two changes.

Irregular forms are looked up first (`irregular_forms`), and a word in -ment can
also lose -ent. Only words of more than three letters are stemmed.
"""

import functools
import re

from locost_jax.evaluation.metrics import irregular_forms

# C consonants, V vowels; a word is [C](VC)^m[V], and m its measure.
_C, _V = '[^aeiou][^aeiouy]*', '[aeiouy][aeiou]*'
_SOME = re.compile(f'(?:{_C})?{_V}{_C}')  # m > 0
_ONE = re.compile(f'(?:{_C})?{_V}{_C}(?:{_V})?$')  # m = 1
_MANY = re.compile(f'(?:{_C})?{_V}{_C}{_V}{_C}')  # m > 1
_VOWEL = re.compile(f'(?:{_C})?[aeiouy]')
_SHORT = re.compile(f'{_C}[aeiouy][^aeiouwxy]$')  # such as hop

_STEP_2 = {
    'ational': 'ate',
    'tional': 'tion',
    'enci': 'ence',
    'anci': 'ance',
    'izer': 'ize',
    'bli': 'ble',
    'alli': 'al',
    'entli': 'ent',
    'eli': 'e',
    'ousli': 'ous',
    'ization': 'ize',
    'ation': 'ate',
    'ator': 'ate',
    'alism': 'al',
    'iveness': 'ive',
    'fulness': 'ful',
    'ousness': 'ous',
    'aliti': 'al',
    'iviti': 'ive',
    'biliti': 'ble',
    'logi': 'log',
}
_STEP_3 = {
    'icate': 'ic',
    'ative': '',
    'alize': 'al',
    'iciti': 'ic',
    'ical': 'ic',
    'ful': '',
    'ness': '',
}
_STEP_4 = (
    'al ance ence er ic able ible ant ement ou ism ate iti ous ive ize'
).split()


def _ending(endings):
  """Returns a regex that matches the longest of some endings."""
  longest_first = sorted(endings, key=len, reverse=True)
  return re.compile(f'({"|".join(longest_first)})$')


_END_2, _END_3, _END_4 = map(_ending, (_STEP_2, _STEP_3, _STEP_4))


@functools.cache
def stem(word):
  """Returns the stem of a word in lower case."""
  if len(word) <= 3:
    return word
  if word in irregular_forms.STEMS:
    return irregular_forms.STEMS[word]
  # An initial y is a consonant; as Y, no pattern matches it as a vowel.
  capital = 'Y' + word[1:] if word[0] == 'y' else word
  made = _drop_last(_derive(_inflect(capital)))
  return made.replace('Y', 'y')


def _inflect(word):
  """Step 1: plurals, -ed, -ing, and a last y."""
  if word.endswith(('sses', 'ies')):
    word = word[:-2]
  elif re.search('[^s]s$', word):
    word = word[:-1]
  if word.endswith('eed'):
    if _SOME.match(word[:-3]):
      word = word[:-1]
  elif ending := re.search('(?:ed|ing)$', word):
    start = word[: ending.start()]
    if _VOWEL.match(start):
      word = _mend(start)
  if word.endswith('y') and _VOWEL.match(word[:-1]):
    word = word[:-1] + 'i'
  return word


def _mend(word):
  """Step 1, after -ed or -ing was removed: agreed, hopped, hoped."""
  if word.endswith(('at', 'bl', 'iz')):
    return word + 'e'
  if re.search(r'([^aeiouylsz])\1$', word):
    return word[:-1]
  return word + 'e' if _SHORT.match(word) else word


def _derive(word):
  """Steps 2 to 4: the endings of derived words."""
  for pattern, endings in ((_END_2, _STEP_2), (_END_3, _STEP_3)):
    found = pattern.search(word)
    if found and _SOME.match(word[: found.start()]):
      word = word[: found.start()] + endings[found[1]]
  found = _END_4.search(word)
  if found and _MANY.match(word[: found.start()]):
    word = word[: found.start()]
  if word.endswith('ment') and _MANY.match(word[:-4]):
    word = word[:-4]
  if word.endswith('ent'):
    return word[:-3] if _MANY.match(word[:-3]) else word
  if word.endswith(('sion', 'tion')) and _MANY.match(word[:-3]):
    return word[:-3]
  return word


def _drop_last(word):
  """Step 5: a last e, and one l of two."""
  if word.endswith('e'):
    start = word[:-1]
    if _MANY.match(start) or (_ONE.match(start) and not _SHORT.match(start)):
      word = start
  if word.endswith('ll') and _MANY.match(word):
    word = word[:-1]
  return word
