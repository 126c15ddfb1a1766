"""Converts weights between Hugging Face directories and runs.

Both directions write to a temporary directory, rename it when it is complete,
and return a report: a dict for JSON of direction ('run' or 'hugging_face'),
model, tensors and parameters (numbers), dtype, copied (the tokenizer's files)
and notes (lines).
"""

import contextlib
import json
import os
from pathlib import Path
import shutil
import time

from locost_jax import files
from locost_jax import models
from locost_jax.config import decode_settings
from locost_jax.config.progress import note
from locost_jax.config.progress import Progress
from locost_jax.errors import disk_error
from locost_jax.errors import InputError
from locost_jax.hugging_face import configs
from locost_jax.hugging_face import export
from locost_jax.hugging_face import hub
from locost_jax.hugging_face import tensors
from locost_jax.hugging_face import weights
from locost_jax.models import parameters
from locost_jax.vocabularies import byte_vocabulary
from locost_jax.vocabularies import sentencepiece_vocabulary
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from locost_jax.workdir import checkpoint
from locost_jax.workdir import find
from locost_jax.workdir import phases as phases_lib


def import_release(source, target):
  """Converts a Hugging Face directory to a WORKDIR."""
  vocabulary = find.find_vocabulary(source)
  config = find.with_separator(configs.model_config(source), vocabulary)
  settings = configs.generation_settings(source, report=note)
  decode_settings.check(settings, config['vocab_size'])
  with files.named(os.path.join(source, 'config.json')):
    model = models.build(config)
  abstract = parameters.flatten(parameters.abstract_params(model))
  find.check_vocabulary(source, vocabulary, config)
  released = weights.Released(source, config, abstract)
  with new_directory(target) as directory:
    params, progress = {}, Progress()
    for path in abstract:
      params[path] = released.read(path)
      progress.show('reading', len(params), len(abstract))
    progress.wipe()
    checkpoint.save_params(
        directory / 'checkpoints' / '0', parameters.unflatten(params)
    )
    copied = []
    if vocabulary is not None:
      home = directory / 'vocabulary'
      copied = copy_tokenizer(source, home)
      # With its special tokens, which may come from the model's config.
      vocabulary_lib.save_vocabulary(vocabulary, home)
    run_config = dict(
        model=config,
        decode=decode_settings.as_dict(settings),
        train=dict(steps=0),
        phases=[],
    )
    _write_json(directory / phases_lib.CONFIG_FILE, run_config)
  notes = [f'{name}: not used by the model' for name in released.unread]
  if line := configs.describe_task_settings(source):
    notes.append(line)
  if not copied:
    notes.append('no supported tokenizer: the run has no vocabulary')
  return dict(
      direction='run',
      model=config['name'],
      tensors=len(released.stored),
      parameters=parameters.count(abstract),
      dtype='float32',
      copied=copied,
      notes=notes,
  )


def export_run(home, step_directory, stored, target, dtype):
  """Converts a run's checkpoint to a Hugging Face directory."""
  config, vocabulary = stored['model'], find.find_vocabulary(home)
  settings = decode_settings.of_run(stored)
  if vocabulary is not None:
    settings = decode_settings.with_ids(settings, vocabulary)
  find.check_vocabulary(home, vocabulary, config)
  abstract = parameters.abstract_params(models.build(config))
  exported = export.Exported(config, parameters.flatten(abstract), dtype)
  params = find.load_run_params(step_directory, stored)
  checkpoint.compare(params, abstract, step_directory)
  params = parameters.flatten(params)
  with new_directory(target) as directory:
    progress = Progress()
    exported.write(
        directory,
        params,
        lambda done: progress.show('writing', done, len(exported.tensors)),
    )
    progress.wipe()
    _write_configs(directory, config, settings, dtype)
    copied, notes = [], []
    if vocabulary is not None:
      copied = copy_tokenizer(home, directory)
      notes += describe_tokenizer(directory, vocabulary)
    else:
      notes.append('the run has no vocabulary: no tokenizer is exported')
  if settings.length_penalty_form != 'hugging_face':
    notes.append(
        f'decode.length_penalty_form={settings.length_penalty_form!r} '
        'is left out: transformers does not have it'
    )
  return dict(
      direction='hugging_face',
      model=config['name'],
      checkpoint=str(step_directory),
      tensors=len(exported.tensors),
      parameters=parameters.count(params),
      dtype=dtype,
      files=[tensors.SAFETENSORS],
      copied=copied,
      notes=notes,
  )


def _write_configs(directory, config, settings, dtype):
  """Writes the two configs, and the code that a LOCOST needs."""
  released = configs.release(config, settings, dtype)
  generation = configs.release_generation(settings)
  _write_json(directory / 'config.json', released)
  _write_json(directory / 'generation_config.json', generation)
  if 'auto_map' in released:
    code = Path(configs.__file__).with_name(f'{configs.CODE}.py')
    shutil.copyfile(code, directory / code.name)


def _write_json(path, content):
  files.write(path, json.dumps(content, indent=2) + '\n')


def copy_tokenizer(home, target):
  """Copies a tokenizer's files; returns their names."""
  inner = Path(home) / 'vocabulary'
  source = inner if inner.is_dir() else Path(home)
  names = [name for name in hub.TOKENIZER_FILES if (source / name).is_file()]
  target.mkdir(exist_ok=True)
  for name in names:
    shutil.copyfile(source / name, target / name)
  return names


_TOKENIZERS = {
    byte_vocabulary.ByteVocabulary: 'ByT5Tokenizer',
    sentencepiece_vocabulary.SentencePieceVocabulary: 'T5Tokenizer',
    sentencepiece_vocabulary.PegasusVocabulary: 'PegasusTokenizer',
}


def describe_tokenizer(directory, vocabulary):
  """Writes tokenizer_config.json, which gives transformers the class."""
  path = directory / 'tokenizer_config.json'
  if type(vocabulary) in _TOKENIZERS and not path.exists():
    content = dict(
        tokenizer_class=_TOKENIZERS[type(vocabulary)],
        extra_ids=vocabulary.extra_ids,
        pad_token='<pad>',
        eos_token='</s>',
        unk_token='<unk>',
    )
    _write_json(path, content)
  if isinstance(vocabulary, byte_vocabulary.ByteVocabulary):
    return ['a byte vocabulary: vocabulary.json; to transformers it is ByT5']
  return []


@contextlib.contextmanager
def new_directory(target):
  """Yields a temporary directory, renamed to `target` at the end.

  It is removed after an exception.
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
    _remove(directory)


def _remove(directory):
  """Removes a directory that threads of Orbax may still write to."""
  for _ in range(20):
    shutil.rmtree(directory, ignore_errors=True)
    if not directory.exists():
      time.sleep(0.05)
      if not directory.exists():
        return
