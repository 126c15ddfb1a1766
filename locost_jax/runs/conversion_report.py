"""The report of a conversion: the source and target of every tensor.

A report is a dict for JSON: direction ('run' or 'hugging_face'), model, tensors
({'from', 'to'}, each a name, a dtype and a shape), copies, unread, parameters,
dtype, copied (the tokenizer's files), notes. `convert` adds source, target and,
with --verify, verified (from `verify_weights.compare`).
"""

import math

from locost_jax.errors import visible


def of_import(config, released, abstract, copied):
  """Returns the report of a conversion from Hugging Face to a run.

  Args:
    config: `config.model` as a mapping.
    released: a `weights.Released`, whose parameters have been read.
    abstract: {path: leaf with a shape} of the parameters.
    copied: names of the tokenizer's files.
  """
  rows = []
  for path, source in released.sources.items():
    for i, name in enumerate(source.names):
      stored = released.stored[name]
      shape = abstract[path].shape[source.is_stacked :]
      rows.append(
          {
              'from': _describe(
                  stored or f'{name}, which is missing: zeros',
                  released.tensors.dtypes.get(stored, 'float32'),
                  released.tensors.shapes.get(stored, ()),
              ),
              'to': _describe(
                  path + f'[{i}]' * source.is_stacked, 'float32', shape
              ),
          }
      )
  return dict(
      direction='run',
      model=config['name'],
      tensors=rows,
      copies={
          released.stored[name]: copies
          for name, copies in released.copies.items()
          if copies
      },
      unread=released.unread,
      parameters=_count(abstract),
      dtype='float32',
      copied=copied,
      notes=[]
      if copied
      else ['no supported tokenizer: the run has no vocabulary'],
  )


def of_export(
    config, checkpoint, exported, params, dtype, written, copied, notes
):
  """Returns the report of a conversion from a checkpoint to Hugging Face.

  Args:
    config: `config.model` as a mapping.
    checkpoint: the checkpoint's directory.
    exported: an `export.Exported`.
    params: {path: array}.
    dtype: of the exported tensors.
    written: names of the tensors' files.
    copied: names of the tokenizer's files.
    notes: lines.
  """
  rows = []
  for name, (path, layer, _) in exported.tensors.items():
    shape = params[path][layer].shape
    rows.append(
        {
            'from': _describe(
                path + ''.join(f'[{i}]' for i in layer), 'float32', shape
            ),
            'to': _describe(name, dtype, exported.shapes[name]),
        }
    )
  return dict(
      direction='hugging_face',
      model=config['name'],
      checkpoint=str(checkpoint),
      tensors=rows,
      copies={},
      unread=[],
      parameters=_count(params),
      dtype=dtype,
      files=written,
      copied=copied,
      notes=notes,
  )


def _describe(name, dtype, shape):
  return dict(name=name, dtype=str(dtype), shape=list(shape))


def _count(params):
  """Returns the number of weights in {path: leaf with a shape}."""
  return sum(math.prod(x.shape) for x in params.values())


def format_text(report):
  """Returns the report as lines."""
  show = lambda one: f'{one["name"]} {one["dtype"]}{one["shape"]}'
  lines = [
      f'{show(row["from"])} -> {show(row["to"])}' for row in report['tensors']
  ]
  lines += [
      f'{copy}: a copy of {name}'
      for name, copies in report['copies'].items()
      for copy in copies
  ]
  lines += [f'{name}: not used by the model' for name in report['unread']]
  size = 2 if report['dtype'] == 'bfloat16' else 4
  lines.append(
      f'{report["model"]}: {len(report["tensors"])} tensors, '
      f'{report["parameters"]:,} parameters, '
      f'{report["parameters"] * size / 1e6:,.1f} MB in {report["dtype"]}'
  )
  if report['copied']:
    lines.append(f'tokenizer: {", ".join(report["copied"])}')
  lines += report['notes']
  if verified := report.get('verified'):
    lines.append(
        f'logits here and in transformers: {verified["tokens"]} tokens, '
        f'largest difference {verified["difference"]:.2g}, largest logit '
        f'{verified["largest"]:.3g}; the same likeliest token at '
        f'{verified["same_choice"]:.1%} of the positions'
    )
  kind = 'a run' if report['direction'] == 'run' else 'a Hugging Face directory'
  lines.append(
      f'{report["target"]}: {kind}, from '
      f'{report.get("checkpoint", report["source"])}'
  )
  return '\n'.join(map(visible, lines))
