"""The arrays of tests/golden, and the models that must give them."""

import functools
from pathlib import Path

import jax
import numpy as np
import pytest

import locost_jax
from locost_jax import models
from locost_jax.config import decode_settings
from locost_jax.hugging_face import configs
from locost_jax.hugging_face import names as names_lib
from locost_jax.models import parameters
from locost_jax.training import losses

DIRECTORY = Path(__file__).parents[1] / 'golden'
PAD = 1  # of PageSum and SimCAS
GREEDY = decode_settings.Settings(
    max_length=20, eos_id=95, pad_id=PAD, start_id=2
)
# Type, largest error of values, largest relative error of gradients.
FLOAT32, FLOAT64 = ('float32', 2e-4, 1e-3), ('float64', 1e-9, 1e-6)
IN_BOTH = pytest.mark.parametrize('dtype,atol,bound', (FLOAT32, FLOAT64))
MOSTLY_FLOAT64 = pytest.mark.parametrize(
    'dtype,atol,bound',
    (pytest.param(*FLOAT32, marks=pytest.mark.products), FLOAT64),
)


@functools.cache
def arrays(folder, name='io'):
  return dict(np.load(DIRECTORY / folder / f'{name}.npz'))


def mask_of(folder):
  """Returns the mask of the documents, 2 at LED's global tokens: int32."""
  io = arrays(folder)
  marks = io.get('global_attention_mask', 0)
  return np.int32(io['attention_mask'] * (1 + marks))


@functools.cache
def load(folder, dtype='float32', **options):
  """Returns the Summarizer of a folder; reads and uses every tensor."""
  with jax.enable_x64(dtype == 'float64'):
    return locost_jax.load(DIRECTORY / folder, dtype=dtype, **options)


def changed(folder, dtype='float32', remat='auto', **changes):
  """Returns (model, parameters) of a folder, with other keys of the model."""
  config = configs.model_config(DIRECTORY / folder) | changes
  return models.build(config, dtype, remat), load(folder, dtype).params


def released(folder, tree):
  """Returns parameters or gradients under the release's names and layouts."""
  flat, named = parameters.flatten(tree), {}
  table = names_lib.table(configs.model_config(DIRECTORY / folder))
  for path, source in names_lib.sources(table, flat).items():
    array = np.asarray(flat[path])
    layers = array if source.is_stacked else [array]
    for name, layer in zip(source.names, layers, strict=True):
      named[name] = source.form[1](layer)
  return named


def compare(folder, found, atol, select=lambda name, array: array):
  """Compares with the release's float64 run; returns the names that it has.

  Args:
    folder: of tests/golden.
    found: {name: array}.
    atol: largest error.
    select: (name, array) -> the part that is compared.
  """
  io, names = arrays(folder), set()
  for name, value in found.items():
    for run, least in ('f64', 0), ('f64r', 3e-6):  # rounded to float32
      if f'{run}/{name}' in io:
        names.add(name)
        np.testing.assert_allclose(
            select(name, np.asarray(value)),
            select(name, io[f'{run}/{name}']),
            rtol=0,
            atol=max(atol, least),
            err_msg=name,
        )
  return names


def compare_gradients(found, want, bound, pad=None):
  """Compares gradients that both have, relative to the largest number.

  Args:
    found: {released name: array}.
    want: {released name: array}, stored as float32.
    bound: largest relative error.
    pad: the row of the embedding without a gradient: in torch, look-ups of
      padding give none.
  """
  for name in found.keys() & want.keys():
    got, array = found[name], want[name]
    if name == 'model.shared.weight' and pad is not None:
      got, array = np.delete(got, pad, 0), np.delete(array, pad, 0)
    atol = bound * np.abs(array).max() + 1e-7
    np.testing.assert_allclose(
        got, array, rtol=0, atol=atol, equal_nan=False, err_msg=name
    )


def release_loss(logits, targets, smoothing=0.1):
  """The loss of PageSum and SimCAS: decoders read <s> and never predict it."""
  total, weight = losses.cross_entropy(
      logits[:, :-1], targets[:, 1:], targets[:, 1:] != PAD, smoothing
  )
  return total / weight
