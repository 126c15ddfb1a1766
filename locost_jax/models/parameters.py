"""Parameters by their paths, like 'encoder/layers/mixer/ssm/log_dt'."""

import hashlib
import math

from flax import traverse_util
import jax
import jax.numpy as jnp
import numpy as np


def abstract_params(model):
  """Returns the shapes of a model's parameters, without making them."""
  tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
  key = jax.eval_shape(lambda: jax.random.key(0))
  return jax.eval_shape(model.init, key, tokens, tokens)['params']


def count(params):
  """Returns the number of parameters in a tree of arrays or shapes."""
  return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def find_not_finite(params):
  """Returns the path of the first parameter with nan or infinity, or None."""
  finite = jax.jit(
      lambda params: [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(params)]
  )(params)
  return next(
      (x for x, is_ok in zip(flatten(params), finite) if not is_ok), None
  )


def fingerprint(params):
  """Returns a SHA-256 in hex of names, types, shapes and values of arrays."""
  digest = hashlib.sha256()
  for path, array in sorted(flatten(params).items()):
    digest.update(f'{path} {array.dtype.name} {array.shape}\n'.encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
  return digest.hexdigest()


def flatten(tree):
  """Returns {path: leaf} of a pytree, in the order of jax.tree.leaves."""
  return {
      _path(keys): leaf
      for keys, leaf in jax.tree_util.tree_leaves_with_path(tree)
  }


def unflatten(flat):
  """Returns the nested dict of {path: leaf}."""
  return traverse_util.unflatten_dict(flat, sep='/')


def map_with_path(function, tree, *rest):
  """Like jax.tree.map, but calls function(path, leaf, ...)."""
  return jax.tree_util.tree_map_with_path(
      lambda keys, *leaves: function(_path(keys), *leaves), tree, *rest
  )


def _path(keys):
  return jax.tree_util.keystr(keys, simple=True, separator='/')
