"""Loads models for metrics that run in PyTorch (extra `metrics`).

A model comes from a local directory or hf:// (see `hugging_face.hub`), never
from a download by transformers itself. Code in a directory is never executed.
"""

import os
from typing import Any, NamedTuple

import numpy as np

from locost_jax import files
from locost_jax.errors import InputError
from locost_jax.hugging_face import hub

_MOST_TOKENS = 10**6  # for a model without a limit
# Their first position is the padding id + 1.
_SHIFTED = ('roberta', 'xlm-roberta', 'camembert', 'longformer')


class Loaded(NamedTuple):
  """A model in evaluation mode, its tokenizer, and what they can read."""

  model: Any
  tokenizer: Any
  device: str  # 'cuda' or 'cpu'
  length: int  # most tokens of an input, special tokens included
  name: str  # of the directory, for signatures
  kind: str  # model_type in config.json


def load(name, model, auto, expected):
  """Loads a model and its tokenizer: a `Loaded`.

  Args:
    model: a directory or hf://org/name[@revision].
    auto: the class of transformers, such as 'AutoModelForMaskedLM'.
    expected: the kind of model that the metric needs, for messages.
  """
  try:
    import torch
    import transformers
  except ImportError as error:
    raise InputError(
        f'--metrics={name} needs {error.name}: pip install "locost_jax[metrics]"'
    ) from None
  transformers.utils.logging.set_verbosity_error()
  transformers.utils.logging.disable_progress_bar()
  directory = hub.find_directory(model)
  try:
    found = files.read_object(os.path.join(directory, 'config.json'))
  except FileNotFoundError:
    raise InputError(f'{directory}: holds no config.json') from None
  kind = found.get('model_type')
  problem = (
      f'--model={model}: --metrics={name} needs {expected}, got '
      f'model_type={kind!r}'
  )
  local = dict(local_files_only=True)
  try:
    config = transformers.AutoConfig.from_pretrained(directory, **local)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory, **local)
    loaded, info = getattr(transformers, auto).from_pretrained(
        directory, output_loading_info=True, dtype=torch.float32, **local
    )
  except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
    reason = (str(error).strip() or type(error).__name__).split('\n')[0]
    raise InputError(f'{problem}: {reason}') from None
  is_used = lambda key: auto != 'AutoModel' or not key.startswith('pooler.')
  missing = sorted(filter(is_used, info['missing_keys']))
  if missing:
    raise InputError(
        f'{problem} without the weights {missing[0]}'
        + (f' and {len(missing) - 1} more' if missing[1:] else '')
    )
  positions = getattr(config, 'max_position_embeddings', None)
  if positions is not None and config.model_type in _SHIFTED:
    positions -= (config.pad_token_id or 0) + 1
  known = [tokenizer.model_max_length, positions, _MOST_TOKENS]
  length = int(min(one for one in known if one and one > 0))
  device = 'cuda' if torch.cuda.is_available() else 'cpu'
  short = model.removeprefix(hub.PREFIX)  # of hf://org/name
  if short == model:
    short = os.path.basename(os.path.abspath(model)).replace('|', '_')
  return Loaded(
      loaded.eval().to(device), tokenizer, device, length, short, kind
  )


def pad(torch, loaded, rows):
  """Pads lists of ids: returns (ids [B, L], mask [B, L]) on the device."""
  length = max(map(len, rows))
  fill = loaded.tokenizer.pad_token_id or 0
  padded = [row + [fill] * (length - len(row)) for row in rows]
  mask = [[i < len(row) for i in range(length)] for row in rows]
  return [torch.tensor(x).long().to(loaded.device) for x in (padded, mask)]


def embed(loaded, rows, layer=-1):
  """Yields the unit vectors of the tokens of lists of ids, float64 [T, D]."""
  import torch

  model = loaded.model
  if model.config.is_encoder_decoder:
    model = model.get_encoder()
  ids, mask = pad(torch, loaded, rows)
  with torch.inference_mode():
    states = model(
        input_ids=ids, attention_mask=mask, output_hidden_states=True
    ).hidden_states[layer]
  for row, state in zip(rows, states.cpu().numpy().astype(np.float64)):
    vectors = state[: len(row)]
    yield vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def batches(lengths, batch_size):
  """Yields batches of indices of similar lengths, longest first."""
  order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
  for start in range(0, len(order), batch_size):
    yield order[start : start + batch_size]
