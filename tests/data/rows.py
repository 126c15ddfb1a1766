"""Rows of tests: writing them to files, and reading a corpus of them."""

import gzip
import json
import types

from configs import default
from locost_jax.data import cache as cache_lib
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import pages
from tests.batches import BYTES


def write_jsonl(path, rows):
  """Writes rows, and the folder of the file; returns its name."""
  path.parent.mkdir(parents=True, exist_ok=True)
  opener = gzip.open if path.suffix == '.gz' else open
  with opener(path, 'wt', encoding='utf-8') as file:
    file.writelines(json.dumps(row) + '\n' for row in rows)
  return str(path)


def read_jsonl(path):
  return [json.loads(line) for line in path.read_text().splitlines()]


def own_files(path, rows, **data):
  """Returns a config with rows for training and validation in a file."""
  file = write_jsonl(path, rows)
  return config_of(file, file, **data)


def config_of(train='', validation='', gaps=False, **data):
  """Returns a config of files; gaps: of gap sentences of their `text`."""
  config = default.get_config()
  config.data.update(train_files=train, validation_files=validation)
  config.data.update(data)
  if gaps:
    config.gsg = dict(ratio=0.2)
    config.data.input_field = 'text'
  return config


def locate(config, directory='caches', vocabulary=BYTES):
  """Returns the path and the key of the cache of a training split."""
  found = corpus_lib.corpus(config)
  return cache_lib.locate(config, found, vocabulary, 'train', directory)


def numbered(n, start=0):
  """Returns n rows whose texts differ in a number."""
  return [
      dict(
          id=f'row {i}',
          document=f'Document {i} speaks of {i * 7}.',
          summary=f'Number {i}.',
      )
      for i in range(start, start + n)
  ]


def paged(number, parts, **fields):
  """Returns a row with the parts as document, documents and sections."""
  return dict(
      id=str(number),
      document=' '.join(parts),
      summary=f'Number {number}.',
      documents=parts,
      sections=[
          dict(heading=f'H{i}', text=part) for i, part in enumerate(parts)
      ],
      **fields,
  )


def story(i):
  return (
      f'The cat number {i} sat on a mat. A dog came by. The dog saw the '
      f'cat {i}. It was late.\nBoth left the mat {i}. Nobody knew why.'
  )


def read_all(config, split):
  return list(corpus_lib.corpus(config).rows(split))


def store_tfds(directory, name, config, version, splits, shards):
  """Writes splits {split: {feature: texts}} as TFDS prepares a corpus."""
  import tensorflow as tf
  import tensorflow_datasets as tfds

  tfds.dataset_builders.store_as_tfds_dataset(
      name=name,
      config=config,
      version=version,
      data_dir=directory,
      features=tfds.features.FeaturesDict(
          {feature: tfds.features.Text() for feature in splits['train']}
      ),
      split_datasets={
          split: tf.data.Dataset.from_tensor_slices(rows)
          for split, rows in splits.items()
      },
      download_config=tfds.download.DownloadConfig(num_shards=shards),
  )


def tokenise(parts, query, form, page_length, most, vocabulary, **settings):
  """Calls `pages.tokenise` with these settings of config.data."""
  data = types.SimpleNamespace(
      pages=form, page_length=page_length, empty_page='.', query_in='every'
  )
  vars(data).update(settings)
  return pages.tokenise(parts, query, data, most, vocabulary)
