"""The mesh in context, as models see it: its axes, and the layout of arrays.

Without a mesh these functions do nothing, so that a model is written once.
Axes: `data` and `fsdp` split the rows of a batch, `tensor` the inside of a
layer, `sequence` the length of a document, or its pages (`by_page`).
"""

from collections.abc import Callable
import contextvars
import functools
import math
from typing import TypeVar

import jax
from jax.sharding import PartitionSpec as P

from locost_jax.errors import InputError

Result = TypeVar('Result')

# The mesh axes of the whole project.
DATA, FSDP, TENSOR, SEQUENCE = 'data', 'fsdp', 'tensor', 'sequence'
AXES = (DATA, FSDP, TENSOR, SEQUENCE)
ROWS = (DATA, FSDP)

# Whether the rows of arrays are pages, split over `sequence` too. It is read
# while a function is traced, never by the backward pass of a custom_vjp.
_rows_are_pages = contextvars.ContextVar('rows_are_pages', default=False)


def platform():
  """'cpu', 'gpu' or 'tpu': of the mesh in context, else JAX's default.

  A program can be compiled for devices that are not here (`main --topology`).
  """
  device = jax.sharding.get_abstract_mesh().abstract_device
  return jax.default_backend() if device is None else device.platform


def axis_size(axis):
  """The number of parts that an axis of the mesh splits arrays into.

  1 without a mesh, for None, and for `sequence` if rows are pages.
  """
  if axis == SEQUENCE and _rows_are_pages.get():
    return 1
  return jax.sharding.get_abstract_mesh().shape.get(axis, 1)


def row_parts():
  """The number of parts that rows are split into."""
  sizes = jax.sharding.get_abstract_mesh().shape
  return math.prod(sizes.get(axis, 1) for axis in _place((ROWS,))[0])


def length_axis():
  """The mesh axis that splits the length of a row; None for pages."""
  return _place((SEQUENCE,))[0]


def on_mesh(
    function: Callable[..., Result], in_specs, out_specs, *arguments
) -> Result:
  """Runs function(*arguments) on each device's own part of the arguments.

  Without a mesh of several devices, or inside another `on_mesh`, the function
  is called directly. It may use collectives over the mesh's axes.

  Args:
    in_specs: a PartitionSpec, or a tree of them, for each argument.
    out_specs: of the result.
  """
  if not _is_whole():
    return function(*arguments)
  in_specs, out_specs = jax.tree.map(
      lambda spec: P(*_place(spec)), (in_specs, out_specs)
  )
  axes = _named(in_specs) | _named(out_specs)

  def local(*arguments):
    # Sum gradients over devices at the arguments, not at the (longer) spectra
    # made from them.
    return function(*varying(arguments, axes))

  return jax.shard_map(
      local,
      mesh=jax.sharding.get_abstract_mesh(),
      in_specs=in_specs,
      out_specs=out_specs,
  )(*arguments)


def _is_whole():
  """Whether arrays are global: several devices, and outside `on_mesh`."""
  mesh = jax.sharding.get_abstract_mesh()
  return not mesh.empty and mesh.size > 1 and not mesh.manual_axes


def _named(specs):
  """The mesh axes in a tree of PartitionSpecs."""
  return {
      axis
      for spec in jax.tree.leaves(specs)
      for part in spec
      if part
      for axis in ((part,) if isinstance(part, str) else part)
  }


def lay_out(x, *axes):
  """x with its dimensions split over these mesh axes (None: not split).

  XLA infers the other layouts. Without this constraint it gathers activations
  instead of parameters if one axis splits both parameters and rows.
  """
  if not _is_whole():
    return x
  return jax.lax.with_sharding_constraint(x, P(*_place(axes)))


def is_on_mesh():
  """Whether this code runs inside `on_mesh`, on one device of several."""
  return bool(jax.sharding.get_abstract_mesh().manual_axes)


def own_key(key, *axes):
  """A random key for this device, different along these mesh axes.

  Outside `on_mesh`, and for None, the key itself. If rows are pages, keys also
  differ along `sequence`.
  """
  if key is None or not is_on_mesh():
    return key
  if _rows_are_pages.get() and SEQUENCE not in axes:
    axes = (*axes, SEQUENCE)
  return functools.reduce(
      jax.random.fold_in, map(jax.lax.axis_index, axes), key
  )


def by_page(function, *arguments):
  """Runs function(*arguments) with pages as rows: [B, P, ...] -> [B, P, ...].

  Pages are split over `sequence`, and each device works on its own pages. So
  while `function` (trees [B P, ...] -> a tree [B P, ...]) runs, this module
  reads ROWS in a spec as (*ROWS, SEQUENCE) and SEQUENCE alone as None. The only
  page of a document is split by its length instead.

  Raises:
    InputError: `sequence` does not divide P.
  """
  pages = jax.tree.leaves(arguments)[0].shape[1]
  arguments = jax.tree.map(to_rows, arguments)
  token = _rows_are_pages.set(page_parts(pages) > 1)
  try:
    result = function(*arguments)
  finally:
    _rows_are_pages.reset(token)
  return jax.tree.map(lambda x: to_pages(x, pages), result)


def bind_rows(function):
  """The function, bound to whether rows are pages now.

  The backward pass of a custom_vjp traces it again, after `by_page` has ended.
  """
  rows_are_pages = _rows_are_pages.get()

  def run(*arguments):
    token = _rows_are_pages.set(rows_are_pages)
    try:
      return function(*arguments)
    finally:
      _rows_are_pages.reset(token)

  return run


def page_parts(pages):
  """The number of parts that the pages of a document are split into."""
  parts = 1 if pages == 1 else axis_size(SEQUENCE)
  check_pages(pages, parts)
  return parts


def check_pages(pages, parts, words='the {} pages of a document'):
  """Raises an InputError unless P pages, `words`, split into equal parts."""
  if pages % parts:
    raise InputError(
        f'mesh.sequence={parts}: does not divide {words.format(pages)}'
    )


def split_pages(x):
  """[B, P, ...] -> [B s, P / s, ...]: each device's part as a document.

  Rows are in the order of the devices, s rows per document, so that no data
  moves.
  """
  B, pages, *rest = x.shape
  s, n = page_parts(pages), row_parts()
  if s == 1:
    return x
  x = x.reshape(n, B // n, s, pages // s, *rest)
  x = lay_out(x, ROWS, None, SEQUENCE).swapaxes(1, 2)
  return lay_out(x.reshape(B * s, pages // s, *rest), (*ROWS, SEQUENCE))


def to_rows(x):
  """[B, P, ...] -> [B P, ...], in the order of `split_pages`."""
  return split_pages(x).reshape(-1, *x.shape[2:])


def to_pages(x, pages):
  """Undoes `to_rows`: [B P, ...] -> [B, P, ...]."""
  s, n, rest = page_parts(pages), row_parts(), x.shape[1:]
  if s > 1:
    x = x.reshape(n, s, -1, pages // s, *rest).swapaxes(1, 2)
  x = x.reshape(-1, pages, *rest)
  return lay_out(x, ROWS, SEQUENCE) if s > 1 else x


def _place(axes):
  """The mesh axes of an array's dimensions, adapted if rows are pages."""
  if not _rows_are_pages.get():
    return axes
  pages = {ROWS: (*ROWS, SEQUENCE), SEQUENCE: None}
  return [pages.get(axis, axis) for axis in axes]


def match_type(step, carry):
  """Gives a loop's initial carry the type that step(carry) returns.

  Inside shard_map, values equal on all devices may differ after a step.
  """
  if not jax.sharding.get_abstract_mesh().manual_axes:
    return carry
  return jax.tree.map(
      lambda x, after: varying(x, _axes(after)),
      carry,
      jax.eval_shape(step, carry),
  )


def varying(tree, axes):
  """Marks arrays in shard_map as varying along these mesh axes."""
  return jax.tree.map(
      lambda x: jax.lax.pcast(
          x,
          tuple(axis for axis in axes if axis not in _axes(jax.typeof(x))),
          to='varying',
      ),
      tree,
  )


def _axes(kind):
  """The mesh axes along which values of a type in shard_map vary."""
  if hasattr(kind, 'vma'):  # its name in other releases of JAX
    return kind.vma
  return kind.manual_axis_type.varying
