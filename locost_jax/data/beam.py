"""Tokenises a very large corpus on a cluster, with Apache Beam.

  python -m locost_jax.data.beam --config=configs/pretrain_c4.py --output=caches
  python -m locost_jax.data.beam --config=configs/pretrain_c4.py \\
      --output=gs://BUCKET/caches -- --runner=DataflowRunner --region=REGION \\
      --project=PROJECT --temp_location=gs://BUCKET/tmp

Arguments after `--` go to Beam: the runner (by default this machine) and its
options. The runner must install this package on its workers. All workers, and
later the run, must see the corpus under one path: on a shared disk, or on gs://
for TFDS. Every shard of the training split becomes the same files that
data/streamed.py makes during a run. Finished shards are skipped, so a stopped
job can be started again. A run finds the caches with
--config.data.cache_dir=DIR; copy them there if Beam wrote them elsewhere.

Only a corpus that is cached shard by shard can be used. For others use
`python -m locost_jax.data.cache` on one machine.
"""

import dataclasses
import functools
import pathlib
import tempfile

from absl import flags

from locost_jax.config import commands
from locost_jax.data import blocks
from locost_jax.data import cache as cache_lib
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import records
from locost_jax.data import streamed
from locost_jax.data import tasks
from locost_jax.errors import InputError
from locost_jax.vocabularies import vocabulary as vocabulary_lib


def define_flags(values, argv):
  """Defines this command's flags."""
  commands.define_config(values, argv, 'configs/pretrain_c4.py')
  commands.define_task(values)
  flags.DEFINE_string(
      'output',
      None,
      'DIR for the caches, on any file system that Beam can write to',
      flag_values=values,
  )


def main(values, arguments):
  """Runs the command."""
  if not values.output:
    raise InputError('--output=DIR is missing: where to keep the caches?')
  config, _ = commands.get_config(values)
  tasks.check(config)
  if config.data.vocabulary == 'train':
    raise InputError(
        "config.data.vocabulary='train': expected a SentencePiece "
        "file or 'byte', the same on every worker"
    )
  vocabulary = vocabulary_lib.load_vocabulary(config.data.vocabulary)
  path = run(config, vocabulary, values.output, arguments)
  print(path)


def run(config, vocabulary, output, options=()):
  """Tokenises the training split of a config.

  Args:
    options: options of Beam, such as '--runner=DirectRunner'.
  """
  try:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
  except ImportError:
    raise InputError(
        'apache-beam is not installed: pip install ' "'locost_jax[train,beam]'"
    ) from None
  from locost_jax.data import beam as own  # not __main__, for the workers

  found = corpus_lib.corpus(config)
  if not cache_lib.is_large(config, found):
    raise InputError(
        f'{found.name}: small enough for one machine: `python -m '
        f'locost_jax.data.cache --task={found.name} --output={output}`'
    )
  path, key = cache_lib.locate(config, found, vocabulary, 'train', output)
  job = blocks.Job(config.to_dict(), vocabulary, 'train')
  write(f'{output}/{path.name}/{records.KEY}', records.dump_key(key).encode())
  with beam.Pipeline(options=PipelineOptions(list(options))) as pipeline:
    _ = (
        pipeline
        | 'shards' >> beam.Create(range(len(found.splits['train'])))
        | 'spread' >> beam.Reshuffle()
        | 'tokenise'
        >> beam.Map(
            functools.partial(own.tokenise_shard, job, f'{output}/{path.name}')
        )
    )
  return f'{output}/{path.name}'


def tokenise_shard(job, output, shard):
  """Makes a shard's cache and copies it; returns its records, 0 if complete.

  stats.json is copied last, because a cache without it is incomplete.
  """
  from apache_beam.io.filesystems import FileSystems

  name = pathlib.Path(output.rpartition('/')[2])
  place = f'{output}/{streamed.shard_path(name, shard).name}'
  if FileSystems.exists(f'{place}/{records.STATS}'):
    return 0
  with tempfile.TemporaryDirectory() as directory:
    made = pathlib.Path(directory) / 'shard'
    stats = blocks.build(
        dataclasses.replace(job, shards=(shard,)),
        streamed.shard_key(name, shard),
        made,
    )
    files = sorted(made.iterdir(), key=lambda file: file.name == records.STATS)
    for file in files:
      write(f'{place}/{file.name}', file.read_bytes())
  return stats['records']


def write(path, data):
  """Writes a file, with its directory, on any file system of Beam."""
  from apache_beam.io.filesystem import CompressionTypes
  from apache_beam.io.filesystems import FileSystems

  directory = path.rpartition('/')[0]
  if '://' not in directory:  # object stores have no directories
    pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
  with FileSystems.create(
      path, compression_type=CompressionTypes.UNCOMPRESSED
  ) as file:
    file.write(data)


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
