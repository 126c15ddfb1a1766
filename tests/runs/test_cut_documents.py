"""The line of `main` about documents cut at the maximum lengths."""

from locost_jax.data import blocks
from locost_jax.data import cache as cache_lib
from locost_jax.data import inspect
from locost_jax.runs import assemble
from locost_jax.runs import checks
from locost_jax.workdir import phases as phases_lib
from tests import tiny_run
from tests.batches import BYTES
from tests.runs import test_main


def make_rows(count):
  return [
      dict(document='word ' * (i + 1), summary='Sum. ' * (i % 3 + 1))
      for i in range(count)
  ]


def make_setup(tmp_path, **data):
  """Returns a Setup with open caches of 30 and 5 documents."""
  config = tiny_run.make_config()
  config.data.update(
      train_files=test_main.write_rows(tmp_path / 't.jsonl', make_rows(30)),
      validation_files=test_main.write_rows(tmp_path / 'v.jsonl', make_rows(5)),
      max_input_length=64,
      max_target_length=12,
      **data,
  )
  return opened(config, tmp_path)


def opened(config, tmp_path):
  setup = assemble.Setup(phases_lib.Phase('', tmp_path, config))
  setup.use_vocabulary(BYTES)
  setup.open_caches(tmp_path / 'cache', ('train', 'validation'))
  return setup


def test_counts_equal_those_of_inspect(tmp_path):
  """`inspect` counts them independently."""
  setup = make_setup(tmp_path)
  expected = inspect.inspect('jsonl', setup.config, BYTES)['splits']
  lines = list(checks.describe_cut(setup))
  assert len(lines) == 2
  for line, split in zip(lines, ('train', 'validation')):
    documents = expected[split]['documents']
    parts = [
        f'data.{key}={most} cuts {side["documents_cut"] * documents:.0f} of '
        f'{documents} {name}, {side["tokens_cut"]:.1%} of their tokens'
        for name, key, most in (
            ('inputs', 'max_input_length', 64),
            ('targets', 'max_target_length', 12),
        )
        if (side := expected[split][name])['documents_cut']
    ]
    assert line == f'jsonl, {split}: {"; ".join(parts)}'
  assert 'cuts 18 of 30 inputs' in lines[0]


def test_no_line_if_nothing_is_cut(tmp_path):
  config = make_setup(tmp_path).config
  config.data.update(max_input_length=999, max_target_length=99)
  assert not list(checks.describe_cut(opened(config, tmp_path)))


def test_a_part_of_a_cache_counts_its_documents(tmp_path):
  setup = make_setup(tmp_path, train_examples=30)
  line = next(checks.describe_cut(setup))
  assert 'max_input_length=64 cuts 18 of 30 inputs;' in line
  assert 'tokens' not in line


def test_an_older_cache_counts_its_documents(tmp_path):
  setup = make_setup(tmp_path)
  cache = setup.caches['train']
  for name in [name for name in cache.stats if name.endswith(('_cut', 'lost'))]:
    del cache.stats[name]
  assert 'cuts 18 of 30 inputs;' in next(checks.describe_cut(setup))


def test_stopped_and_limited_builds(tmp_path):
  """They have no counts, which would need another pass."""
  config = make_setup(tmp_path).config
  config.eval.examples = 3
  job = blocks.Job(config.to_dict(), BYTES, 'train', limit=3)
  stats = blocks.build(job, {}, tmp_path / 'limited')
  assert stats['records'] == 3 and 'inputs_cut' not in stats
  assert cache_lib.records.Cache(tmp_path / 'limited').stats == stats
