"""Loads models for metrics that run in PyTorch (extra `metrics`).

A model comes from a local directory or hf:// (see `hugging_face.hub`), never
from a download by transformers itself. Code in a directory is never executed.
"""

import os
from typing import Any, NamedTuple

from locost_jax import untrusted
from locost_jax.errors import InputError
from locost_jax.hugging_face import hub

_MOST_TOKENS = 10**6  # for a model without a limit


class Loaded(NamedTuple):
  """A model and its tokenizer.

  Attributes:
    model: in evaluation mode, on `device`.
    tokenizer: the tokenizer of transformers.
    device: 'cuda' or 'cpu'.
    length: most tokens of an input, special tokens included.
    name: of the directory, for signatures.
    kind: model_type in config.json.
  """

  model: Any
  tokenizer: Any
  device: str
  length: int
  name: str
  kind: str


def packages(name):
  """Returns (torch, transformers).

  Args:
    name: of the metric that needs them.

  Raises:
    InputError: they are not installed.
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
  return torch, transformers


def read_config(directory):
  """Returns config.json of a directory, a dict.

  Raises:
    InputError: the file does not exist, or is not a JSON object.
  """
  path = os.path.join(directory, 'config.json')
  try:
    return untrusted.read_object(path)
  except FileNotFoundError:
    raise InputError(f'{directory}: holds no config.json') from None


def load(name, model, auto, expected):
  """Loads a model and its tokenizer: a `Loaded`.

  Args:
    name: of the metric.
    model: a directory or hf://org/name[@revision].
    auto: the class of transformers, such as 'AutoModelForMaskedLM'.
    expected: the kind of model that the metric needs, for messages.

  Raises:
    InputError: no such directory, another architecture, no tokenizer, or
      missing weights.
  """
  torch, transformers = packages(name)
  directory = hub.find_directory(model)
  kind = read_config(directory).get('model_type')
  problem = f'--model={model}: --metrics={name} needs {expected}'
  try:
    config = transformers.AutoConfig.from_pretrained(
        directory, local_files_only=True
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        directory, local_files_only=True
    )
    loaded, info = getattr(transformers, auto).from_pretrained(
        directory,
        local_files_only=True,
        output_loading_info=True,
        dtype=torch.float32,
    )
  except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
    reason = (str(error).strip() or type(error).__name__).split('\n')[0]
    raise InputError(f'{problem}, got model_type={kind!r}: {reason}') from None
  missing = [
      key
      for key in sorted(info['missing_keys'])
      if auto != 'AutoModel' or not key.startswith('pooler.')
  ]
  if missing:
    raise InputError(
        f'{problem}, got model_type={kind!r} without the weights {missing[0]}'
        + (f' and {len(missing) - 1} more' if missing[1:] else '')
    )
  device = 'cuda' if torch.cuda.is_available() else 'cpu'
  return Loaded(
      loaded.eval().to(device),
      tokenizer,
      device,
      _most_tokens(config, tokenizer),
      short_name(model),
      kind,
  )


def short_name(model):
  """Returns a model's name for signatures: org/name, or its directory."""
  if model.startswith(hub.PREFIX):
    return model.removeprefix(hub.PREFIX)
  return os.path.basename(os.path.abspath(model)).replace('|', '_')


def _most_tokens(config, tokenizer):
  """Returns the smaller limit of tokenizer and position embeddings."""
  positions = getattr(config, 'max_position_embeddings', None)
  if positions is not None and config.model_type in (
      'roberta',
      'xlm-roberta',
      'camembert',
      'longformer',
  ):
    positions -= (config.pad_token_id or 0) + 1  # first position: pad id + 1
  known = [tokenizer.model_max_length, positions, _MOST_TOKENS]
  return int(min(length for length in known if length and length > 0))


def pad(torch, loaded, rows):
  """Pads lists of ids: returns (ids [B, L], mask [B, L]) on the device."""
  length = max(map(len, rows))
  fill = loaded.tokenizer.pad_token_id or 0
  ids = [row + [fill] * (length - len(row)) for row in rows]
  mask = [[1] * len(row) + [0] * (length - len(row)) for row in rows]
  return (
      torch.tensor(ids, device=loaded.device),
      torch.tensor(mask, device=loaded.device),
  )


def batches(lengths, batch_size):
  """Yields batches of indices of similar lengths, longest first."""
  order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
  for start in range(0, len(order), batch_size):
    yield order[start : start + batch_size]
