"""The panel: files that other programs made of known texts are read whole."""

import collections
import difflib
import functools
import re
import zipfile

import pytest

from locost_jax.documents import readers
from tests.documents import make_panel

# The highest character error rate of a file.
MOST = {'.1.pdf': 0.002, '.2.pdf': 0.01}
# Tokens to align, words to count: a Chinese character is one.
TOKEN = re.compile(r'[\u3400-\u9fff]|[^\W\u3400-\u9fff]+|\W')
WORD = re.compile(r'[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+')
RAISES_NONE = re.compile(r'office\.(?:epub|txt)')
with zipfile.ZipFile(make_panel.PANEL) as _file:
  FILES = {name: _file.read(name) for name in _file.namelist()}


def flat(text):
  """Returns a text without bullets, marks of Markdown, and layout."""
  text = re.sub(r'<sup>6</sup>|\^6\^|(?<=10)⁶', '^6', text)
  text = re.sub(r'(?m)[\\*]|(?<!\S)(?:[•|#]+|[-=:|]+)(?!\S)', '', text)
  text = re.sub(r'\s*([\u3001-\u9fff\uff01-\uff1f])\s*', r'\1', text)
  return ' '.join(text.split())


def distance(a, b):
  """Returns the Levenshtein distance of two strings."""
  row = list(range(len(b) + 1))
  for i, x in enumerate(a, start=1):
    last, row[0] = row[0], i
    for j, y in enumerate(b, start=1):
      last, row[j] = row[j], min(last + (x != y), row[j] + 1, row[j - 1] + 1)
  return row[-1]


def errors(a, b):
  """Returns the differing parts of two texts."""
  a, b = TOKEN.findall(a), TOKEN.findall(b)
  found = difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
  return [
      (''.join(a[i:j]), ''.join(b[k:l]))
      for kind, i, j, k, l in found
      if kind != 'equal'
  ]


def count(text):
  return collections.Counter(WORD.findall(text))


@functools.cache
def known(name):
  """Returns what a file says."""
  source = make_panel.TEXTS[name.split('.')[0]]
  if 'office.epub' in name:  # LibreOffice leaves out the head of a table
    source = re.sub(r'\|.*\n\|--.*\n', '', source)
  text = flat(make_panel.plain(source))
  # and raises no digits of an EPUB or a text.
  return text.replace('10^6', '106') if RAISES_NONE.search(name) else text


@pytest.mark.parametrize('name', FILES)
def test_file_is_read_whole(name):
  found = readers.read(name[name.rindex('.') :], FILES[name], name)
  text, expected = flat(found.text), known(name)
  assert bool(found.places) == (not name.endswith('.txt'))
  wrong = errors(expected, text)
  rate = sum(distance(a, b) for a, b in wrong) / len(expected)
  assert not count(expected) - count(text)
  assert rate <= MOST.get(name[-6:], 0), wrong
