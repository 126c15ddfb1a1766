r"""Warm start: a run begins with parameters of another model: train.init_from.

For each parameter, by its path:

- The first row (regex, replacement) of config.train.init_map whose regex
  matches the whole path decides. The replacement is a path in the source, with
  \1 and \g<0> for matched groups; '' leaves the parameter newly initialised.
- Without such a row, the source's path is the same. If the source is another
  model (config.model.name), this holds only in the top-level modules, such as
  `encoder` and `decoder`, that have the same paths in both: LOCOST has T5's
  decoder, but not its encoder, although some kernels there have the same name
  and shape.

Parameters that the source lacks stay newly initialised. A different shape is an
error, except in the rows of a vocabulary, whose number releases round up: the
rows that both models have are copied.
"""

import math
import os
import re
from typing import NamedTuple

import jax

from locost_jax import files
from locost_jax import models
from locost_jax.devices.sharding import VOCABULARY
from locost_jax.errors import InputError
from locost_jax.hugging_face import configs
from locost_jax.hugging_face import hub
from locost_jax.hugging_face import tensors
from locost_jax.hugging_face import weights
from locost_jax.models import parameters
from locost_jax.workdir import checkpoint
from locost_jax.workdir import find
from locost_jax.workdir import phases as phases_lib

_SHOWN = 6  # groups of parameters in a report


class Source(NamedTuple):
  """A model to copy parameters from."""

  params: dict  # {path: array or shape}
  name: str  # its config.model.name; '': unknown, assumed to be the same model
  where: str  # the value of train.init_from, for messages


def load(config, shapes, directory=None):
  """Loads the parameters to copy from train.init_from.

  Args:
    directory: of a run; None: a run that has not begun.

  Returns:
    ({path: numpy array}, a line that reports what is copied); ({}, None) if
    train.init_from is empty or the run has a checkpoint.
  """
  has_begun = directory is not None and (
      checkpoint.latest_step(os.path.join(directory, 'checkpoints')) is not None
  )
  if has_begun or not config.train.init_from:
    return {}, None
  source = read(config.train.init_from)
  target = parameters.flatten(shapes)
  chosen = choose(source, target, config.model.name, config.train.init_map)
  return take(source, target, chosen), describe(source, target, chosen)


def find_directory(init_from):
  """Returns the directory of train.init_from.

  A model on the Hugging Face Hub is downloaded unless it is cached.
  """
  try:
    return hub.find_directory(init_from)
  except InputError as error:
    raise InputError(f'config.train.init_from={error}') from None


@checkpoint.choose_again
def read(directory):
  """Reads the parameters of a run, checkpoint or Hugging Face model.

  A checkpoint without its run's config is accepted.

  Args:
    directory: a WORKDIR, a checkpoint, a Hugging Face directory or a name on
      its Hub: hf://org/name[@revision], or builtin:NAME.
  """
  where, directory = str(directory), hub.find_directory(directory)
  run = find.find_run(directory)
  if run is not None:
    _, step_directory, settings = run
    params = find.load_run_params(step_directory, settings)
    return Source(parameters.flatten(params), settings['model']['name'], where)
  if not os.path.exists(os.path.join(directory, phases_lib.CONFIG_FILE)):
    params = checkpoint.load_params(directory)
    return Source(parameters.flatten(params), '', where)
  config = configs.model_config(directory)
  with files.named(os.path.join(directory, 'config.json')):
    model = models.build(config)
  shapes = parameters.abstract_params(model)
  params = weights.load_params(directory, config, parameters.flatten(shapes))
  return Source(params, config['name'], where)


def put(params, given):
  """Replaces parameters by those of another model.

  Args:
    given: {path: array} from `load`; emptied, so that memory holds no third
      copy. A smaller array fills the first rows and columns.
  """

  def put_one(path, own):
    new = given.pop(path, own)
    if new.shape == own.shape:
      return jax.device_put(new, own.sharding)
    write = jax.jit(jax.lax.dynamic_update_slice, out_shardings=own.sharding)
    return write(own, new, (0,) * own.ndim)

  return parameters.map_with_path(put_one, params)


def takes_vocabulary(rows, target):
  """Whether an array with one row per token is copied from the source."""
  return any(
      path in target and _by_rows(rows, path) != '' for path, _ in VOCABULARY
  )


def choose(source, target, name, rows):
  """Chooses the parameters to copy: returns {path: path in the source}.

  Args:
    target: {path: array or shape} of the run's parameters.
    rows: config.train.init_map.

  Raises:
    InputError: a row that matches nothing or names a missing path, different
      shapes, or nothing to copy.
  """
  given = f'train.init_from={source.where}'
  for pattern, _ in rows:
    if not any(re.fullmatch(pattern, path) for path in target):
      raise InputError(
          f'train.init_map: {pattern!r} matches no parameter; '
          f'paths read like {min(target)!r}'
      )
  is_same = source.name in ('', name)
  alike = {
      part
      for part in set(map(_part, target))
      if is_same or _below(part, target) == _below(part, source.params)
  }
  chosen = {}
  for path, leaf in target.items():
    source_path = _by_rows(rows, path)
    if source_path is None:
      known = _part(path) in alike and path in source.params
      source_path = path if known else ''
    if not source_path:
      continue
    if source_path not in source.params:
      raise InputError(
          f'{given}: has no {source_path}, which train.init_map wants '
          f'for {path}; paths there read like {min(source.params)!r}'
      )
    have, want = source.params[source_path].shape, leaf.shape
    if len(have) != len(want) or any(
        h != w and (path, i) not in VOCABULARY
        for i, (h, w) in enumerate(zip(have, want))
    ):
      raise InputError(
          f'{given}: {source_path} is {list(have)}; expected {list(want)}, as this '
          'model has it (a row of train.init_map like '
          f"('{_part(path)}/.*', '') leaves it fresh)"
      )
    chosen[path] = source_path
  if not chosen:
    raise InputError(
        f'{given}: a {source.name or "model"} that has nothing in '
        f'common with this {name}'
    )
  return chosen


def take(source, target, chosen):
  """Returns {path: array} to copy, without the rows that the run lacks."""
  taken = {}
  for path, source_path in chosen.items():
    array, want = source.params[source_path], target[path]
    part = tuple(slice(size) for size in want.shape)
    taken[path] = array[part].astype(want.dtype, copy=False)
  return taken


def describe(source, target, chosen):
  """Reports in a line the copied, the new and the unused parameters."""
  size = lambda path: math.prod(target[path].shape)
  total, copied, notes = sum(map(size, target)), 0, []
  fresh = target.keys() - chosen.keys()
  unused = source.params.keys() - set(chosen.values())
  if fresh:
    groups = _shortest_prefixes(fresh, target)
    new = [f'{x} ({sum(map(size, _below(x, fresh))):,})' for x in groups]
    notes.append(f'fresh: {tensors.list_few(new, _SHOWN)}')
  parts = []
  for path, source_path in chosen.items():
    have, want = source.params[source_path].shape, target[path].shape
    copied += math.prod(map(min, have, want))
    for h, w, side in zip(have, want, ('rows', 'columns')):
      if h != w:
        parts.append(f'{path}: {h:,} {side} there, {w:,} here')
  if parts:
    notes.append(', '.join(parts))
  if unused:
    groups = _shortest_prefixes(unused, source.params)
    notes.append(f'not used: {tensors.list_few(groups, _SHOWN)}')
  name = f' ({source.name})' if source.name else ''
  begin = (
      f'warm start from {source.where}{name}: copied {copied:,} of '
      f'{total:,} parameters ({copied / total:.0%})'
  )
  return '; '.join([begin, *notes])


def _by_rows(rows, path):
  """Returns the source path that train.init_map gives a path, or None."""
  for pattern, replacement in rows:
    match = re.fullmatch(pattern, path)
    if match:
      try:
        return match.expand(replacement)
      except (re.error, IndexError) as error:
        raise InputError(f'train.init_map: {replacement!r}: {error}') from None
  return None


def _part(path):
  return path.split('/')[0]


def _below(prefix, paths):
  return {
      path for path in paths if path == prefix or path.startswith(f'{prefix}/')
  }


def _shortest_prefixes(chosen, paths, depth=1):
  """Returns the shortest path prefixes below which every path is chosen."""
  found = []
  for prefix in sorted({'/'.join(path.split('/')[:depth]) for path in paths}):
    below = _below(prefix, paths)
    inside = below & chosen
    if inside == below:
      found.append(prefix)
    elif inside:
      found += _shortest_prefixes(inside, below, depth + 1)
  return found
