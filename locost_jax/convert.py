"""Converts weights: a Hugging Face directory <-> a run's directory.

  python -m locost_jax.convert --source=runs/finetune --target=exported
  python -m locost_jax.convert --source=exported --target=runs/imported

What the source is decides the direction. A run (a WORKDIR stands for its best
checkpoint, or its latest) becomes a Hugging Face directory: config.json,
generation_config.json, model.safetensors and the tokenizer's files. A Hugging
Face directory becomes a WORKDIR with config.json, vocabulary/ and
checkpoints/0, which all that takes a checkpoint takes. The target is there
whole or not at all. stdout has a line for each tensor.
"""

import contextlib
import json
import math
import os
from pathlib import Path
import re
import shutil

from absl import flags

from locost_jax import commands
from locost_jax.errors import disk_error
from locost_jax.errors import InputError
from locost_jax.hugging_face import hub
from locost_jax.progress import Progress

_UNITS = {'': 1, 'K': 10**3, 'M': 10**6, 'G': 10**9, 'T': 10**12}


def define_flags(values, argv):
  """Defines this command's flags."""
  del argv
  string = lambda name, default, help_: flags.DEFINE_string(
      name, default, help_, flag_values=values)
  string('source', None, 'DIR: a WORKDIR, a checkpoint in it, or a Hugging '
         'Face directory')
  string('target', None, 'DIR: made; must not exist')
  flags.DEFINE_enum(
      'dtype', None, ['float32', 'bfloat16'], 'of exported tensors [float32]; '
      "a run's are always float32", flag_values=values)
  string('max_shard_size', '5GB', 'of an exported file; above it there are '
         'several and an index')
  flags.DEFINE_enum('format', 'text', ['text', 'json'], 'of the report on '
                    'stdout', flag_values=values)


def main(values, arguments):
  """Runs the command.

  Args:
    values: the flags of `define_flags`.
    arguments: what else was on the command line; there must be nothing.
  """
  commands.expect_flags_only(arguments)
  for flag in ('source', 'target'):
    if not values[flag].value:
      raise InputError(f'--{flag}=DIR is missing')
  most = parse_size(values.max_shard_size)
  target = Path(values.target).absolute()
  if os.path.lexists(target):
    raise InputError(f'--target={values.target}: exists already; expected a '
                     'new directory')
  if not target.parent.is_dir():
    raise InputError(f'--target={values.target}: no directory {target.parent}')
  source = hub.find_directory(values.source)
  from locost_jax import pretrained  # takes a second
  run = pretrained.find_run(source)
  if run is None:
    if values.dtype not in (None, 'float32'):
      raise InputError(f"--dtype={values.dtype}: a run's parameters are "
                       f'float32, and {source} becomes a run')
    report = import_release(source, target)
  else:
    report = export_run(*run, target, values.dtype or 'float32', most)
  report = dict(source=str(source), target=values.target, **report)
  print(json.dumps(report) if values.format == 'json' else format_text(report))


def import_release(source, target):
  """Makes a WORKDIR of a Hugging Face directory.

  Args:
    source: the directory.
    target: a Path.

  Returns:
    The report, as JSON holds it.
  """
  import dataclasses
  from locost_jax import checkpoint
  from locost_jax import decode
  from locost_jax import models
  from locost_jax import pretrained
  from locost_jax import workdir
  from locost_jax.data import vocabulary as vocabularies
  from locost_jax.hugging_face import configs
  from locost_jax.hugging_face import weights
  config = configs.model_config(source)
  settings = configs.decode_settings(source)
  decode.check(settings, config['vocab_size'])
  abstract = pretrained.flatten(
      pretrained.abstract_params(models.build(config)))
  vocabulary = pretrained.find_vocabulary(source)
  pretrained.check_vocabulary(source, vocabulary, config)
  released = weights.Released(source, config, abstract)
  with new_directory(target) as directory:
    params, progress = {}, Progress()
    for path in abstract:
      params[path] = released.read(path)
      progress.show('reading', len(params), len(abstract))
    progress.wipe()
    checkpoint.save_params(
        directory / 'checkpoints' / '0', pretrained.unflatten(params))
    copied = []
    if vocabulary is not None:
      home = directory / 'vocabulary'
      copied = copy_tokenizer(source, home)
      # With its marks, which may be told by the model's config only.
      vocabularies.save_vocabulary(vocabulary, home)
    workdir.write(directory / workdir.CONFIG_FILE, json.dumps(dict(
        model=config, decode=dataclasses.asdict(settings), train=dict(steps=0),
        phases=[]), indent=2) + '\n')
  rows = []
  for path, source_ in released.sources.items():
    for i, name in enumerate(source_.names):
      stored = released.stored[name]
      shape = abstract[path].shape[source_.is_stacked:]
      rows.append({
          'from': describe(
              stored or f'{name}, which is not there: zeros',
              released.tensors.dtypes.get(stored, 'float32'),
              released.tensors.shapes.get(stored, ())),
          'to': describe(path + f'[{i}]' * source_.is_stacked, 'float32',
                         shape)})
  return dict(
      direction='run', model=config['name'], tensors=rows,
      copies={released.stored[name]: copies
              for name, copies in released.copies.items() if copies},
      unread=released.unread, **totals(params),
      dtype='float32', copied=copied, notes=[] if copied else [
          'no tokenizer that is known here: the run has no vocabulary'])


def export_run(home, step_directory, stored, target, dtype, max_shard_size):
  """Makes a Hugging Face directory of a run's checkpoint.

  Args:
    home, step_directory, stored: of `pretrained.find_run`.
    target: a Path.
    dtype: of the tensors.
    max_shard_size: bytes.

  Returns:
    The report, as JSON holds it.
  """
  from locost_jax import checkpoint
  from locost_jax import decode
  from locost_jax import models
  from locost_jax import pretrained
  from locost_jax.hugging_face import configs
  from locost_jax.hugging_face import export
  config, vocabulary = stored['model'], pretrained.find_vocabulary(home)
  settings = decode.from_config(stored['decode'])
  if vocabulary is not None:
    settings = decode.with_ids(settings, vocabulary)
  pretrained.check_vocabulary(home, vocabulary, config)
  abstract = pretrained.abstract_params(models.build(config))
  exported = export.Exported(config, pretrained.flatten(abstract), dtype)
  params = pretrained.load_run_params(step_directory, stored)
  checkpoint.compare(params, abstract, step_directory)
  params = pretrained.flatten(params)
  with new_directory(target) as directory:
    progress = Progress()
    files = exported.write(
        directory, params, max_shard_size,
        lambda done: progress.show('writing', done, len(exported.tensors)))
    progress.wipe()
    for name, content in (
        ('config.json', configs.release(config, settings, dtype)),
        ('generation_config.json', configs.release_generation(settings))):
      (directory / name).write_text(json.dumps(content, indent=2) + '\n')
    copied, notes = [], []
    if vocabulary is not None:
      copied = copy_tokenizer(home, directory)
      notes += describe_tokenizer(directory, vocabulary)
    else:
      notes.append('the run has no vocabulary: no tokenizer is exported')
  if settings.length_penalty_form != 'hugging_face':
    notes.append(f'decode.length_penalty_form={settings.length_penalty_form!r} '
                 'is not told: transformers does not know it')
  rows = []
  for name, (path, layer, _) in exported.tensors.items():
    shape = params[path][layer].shape
    rows.append({
        'from': describe(path + ''.join(f'[{i}]' for i in layer), 'float32',
                         shape),
        'to': describe(name, dtype, exported.shapes[name])})
  return dict(
      direction='hugging_face', model=config['name'],
      checkpoint=str(step_directory), tensors=rows, copies={}, unread=[],
      **totals(params), dtype=dtype, files=files, copied=copied, notes=notes)


def describe(name, dtype, shape):
  return dict(name=name, dtype=str(dtype), shape=list(shape))


def totals(params):
  return dict(parameters=sum(math.prod(x.shape) for x in params.values()))


def format_text(report):
  """The report as lines."""
  show = lambda one: f'{one["name"]} {one["dtype"]}{one["shape"]}'
  lines = [f'{show(row["from"])} -> {show(row["to"])}'
           for row in report['tensors']]
  lines += [f'{copy}: a copy of {name}'
            for name, copies in report['copies'].items() for copy in copies]
  lines += [f'{name}: no model reads it' for name in report['unread']]
  size = 2 if report['dtype'] == 'bfloat16' else 4
  lines.append(
      f'{report["model"]}: {len(report["tensors"])} tensors, '
      f'{report["parameters"]:,} parameters, '
      f'{report["parameters"] * size / 1e6:,.1f} MB in {report["dtype"]}')
  if report['copied']:
    lines.append(f'tokenizer: {", ".join(report["copied"])}')
  lines += report['notes']
  kind = 'a run' if report['direction'] == 'run' else 'a Hugging Face directory'
  lines.append(f'{report["target"]}: {kind}, from '
               f'{report.get("checkpoint", report["source"])}')
  return '\n'.join(lines)


def copy_tokenizer(home, target):
  """Copies a tokenizer's files; returns their names."""
  inner = Path(home) / 'vocabulary'
  origin = inner if inner.is_dir() else Path(home)
  names = [name for name in hub.TOKENIZER_FILES
           if (origin / name).is_file()]
  target.mkdir(exist_ok=True)
  for name in names:
    shutil.copyfile(origin / name, target / name)
  return names


def describe_tokenizer(directory, vocabulary):
  """Tells transformers which class reads the tokenizer's files.

  Args:
    directory: a Path; a tokenizer_config.json that is there stays.
    vocabulary: the vocabulary.

  Returns:
    Lines for the report.
  """
  from locost_jax.data import vocabulary as vocabularies
  path = directory / 'tokenizer_config.json'
  is_bytes = isinstance(vocabulary, vocabularies.ByteVocabulary)
  notes = [] if not is_bytes else [
      'a byte vocabulary: vocabulary.json; to transformers it is ByT5']
  if not path.exists() and (is_bytes or isinstance(
      vocabulary, vocabularies.SentencePieceVocabulary)):
    path.write_text(json.dumps(dict(
        tokenizer_class='ByT5Tokenizer' if is_bytes else 'T5Tokenizer',
        extra_ids=vocabulary.extra_ids, pad_token='<pad>', eos_token='</s>',
        unk_token='<unk>'), indent=2) + '\n')
  return notes


@contextlib.contextmanager
def new_directory(target):
  """A directory that becomes `target` at the end, or is removed.

  Args:
    target: a Path that does not exist, its parent does.
  """
  directory = target.with_name(f'{target.name}.tmp{os.getpid()}')
  try:
    directory.mkdir()
    yield directory
    directory.rename(target)
  except (OSError, ValueError) as error:
    reason = None if isinstance(error, InputError) else disk_error(error)
    if reason is None:
      raise
    raise InputError(f'{target}: cannot be written: {reason}') from error
  finally:
    shutil.rmtree(directory, ignore_errors=True)


def parse_size(text):
  """'5GB', '500MB', '2GiB' or a number -> bytes.

  Raises:
    InputError: it is nothing of the kind.
  """
  match = re.fullmatch(r'(\d+(?:\.\d+)?) ?(?:([KMGT]?)(i?)B?)', text.strip(),
                       re.IGNORECASE)
  if not match or not float(match[1]):
    raise InputError(f'--max_shard_size={text}: expected a size like 5GB')
  unit = _UNITS[match[2].upper()]
  if match[3]:
    unit = 1 << (10 * list(_UNITS.values()).index(unit))
  return int(float(match[1]) * unit)


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
