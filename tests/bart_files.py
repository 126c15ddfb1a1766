"""A small vocabulary like BART's: bytes and three merges."""

import json


def byte_letters():
  """Returns {byte: letter}: printable bytes stay, others are from U+0100 on."""
  printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
  others = [b for b in range(256) if b not in printed]
  return {
      **{b: chr(b) for b in printed},
      **{b: chr(256 + i) for i, b in enumerate(others)},
  }


def write(directory):
  """Writes vocab.json and merges.txt; returns the directory as a string.

  Ids: '<s>' 0, '<pad>' 1, '</s>' 2, '<unk>' 3, bytes from 4, merges, '<mask>'
  263.
  """
  letters = byte_letters()
  space = letters[ord(' ')]
  merges = [('t', 'h'), ('th', 'e'), (space, 'the')]
  tokens = ['<s>', '<pad>', '</s>', '<unk>', *map(letters.get, range(256))]
  tokens += [*map(''.join, merges), '<mask>']
  directory.mkdir(parents=True, exist_ok=True)
  (directory / 'vocab.json').write_text(
      json.dumps({token: i for i, token in enumerate(tokens)}), 'utf-8'
  )
  (directory / 'merges.txt').write_text(
      '\n'.join(['#version: 0.2', *map(' '.join, merges), '']), 'utf-8'
  )
  return str(directory)
