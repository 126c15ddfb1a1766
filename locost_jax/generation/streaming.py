"""The beginning of a summary that no later step can change.

Greedy search and sampling never take a token back. Beam search does: there,
only the common beginning of all open beams and finished texts is certain.
"""

import re

import numpy as np

from locost_jax.generation import decode
from locost_jax.generation import decode_settings

# The end of a text that later tokens may change: a word, or a character with
# missing bytes. Scripts without spaces have no such words.
_OPEN_WORD = re.compile(r'[^\s\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]*\Z')


def certain_tokens(settings, state):
  """Returns the certain tokens of each document.

  Args:
    settings: a `decode_settings.Settings`.
    state: of `decode.begin` or `decode.advance`.

  Returns:
    A list of B lists of token ids, up to and including eos.
  """
  if decode_settings.method_of(settings) != 'beam':
    written = np.asarray(state['written'])[:, 1 : 1 + int(state['position'])]
    return [_until_eos(row, settings) for row in written.tolist()]
  done, K = np.asarray(state['done']), settings.num_beams
  open_beams = np.asarray(state['written']).reshape(len(done), K, -1)
  open_beams = open_beams[:, :, 1 : 1 + int(state['position'])]
  texts = np.asarray(state['texts'])[:, :, 1:]
  is_text = np.asarray(state['text_scores']) > decode.NEVER
  found = []
  for b in range(len(done)):
    finished = texts[b][is_text[b]].tolist()
    if done[b]:
      rows = finished[:1]
    else:
      rows = open_beams[b].tolist() + finished
    found.append(_common(_until_eos(row, settings) for row in rows))
  return found


def stable_text(text):
  """Returns the beginning of a text that later tokens leave as it is."""
  return _OPEN_WORD.sub('', text, count=1)


def _until_eos(row, settings):
  """A row of ids up to and including eos."""
  if settings.eos_id in row:
    return row[: row.index(settings.eos_id) + 1]
  return row


def _common(rows):
  """The tokens that all rows begin with."""
  found = []
  for tokens in zip(*rows):
    if len(set(tokens)) > 1:
      break
    found.append(tokens[0])
  return found
