"""Settings and fixtures of all tests, and the stages that they belong to.

`python -m pytest` runs the core: each test that no row of TABLE names and that
is not marked slow or soak. `python -m pytest -m STAGE` runs a stage, and a path
runs its tests whatever their stage. A test can also name its stage with a
marker: the further parameters of a product of options do. Those marked soak
repeat a claim with another size, seed or combination: run them before a release.
"""

from importlib import metadata
import os
from pathlib import Path
import shutil

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
# Commands that tests start neither share programs nor use the user's.
os.environ.setdefault('LOCOST_JAX_CACHE', 'off')
# Tests compile many programs and run each briefly, so optimise little. Set
# XLA_FLAGS to override: `XLA_FLAGS= python -m pytest` tests users' programs.
# jaxlib 0.12 aborts at the last flag, which it does not know.
os.environ.setdefault(
    'XLA_FLAGS',
    '--xla_llvm_disable_expensive_passes=true '
    '--xla_backend_optimization_level=0 '
    '--xla_cpu_parallel_codegen_split_count=1'
    + ' --xla_cpu_use_fusion_emitters=false'
    * metadata.version('jaxlib').startswith(('0.10.', '0.11.')),
)

import pytest  # pylint: disable=g-import-not-at-top

from configs import default
from locost_jax.devices import compiling
from tests import deadline

HERE = Path(__file__).parent
# Programs that tests of this process compile, for the next time.
PROGRAMS = HERE.parent / '.pytest_cache' / 'jax'
MOST_BYTES = 4 * 2**30
compiling.SECONDS = 1000.0  # a busy machine does not change what is printed

CORE = 'core'
FAST = 'not slow and not soak'
DEFAULT = f'{CORE} and {FAST}'  # what `python -m pytest` selects
# {stage: files and folders of tests}; the first row that fits decides.
TABLE = {
    'tpu': ('devices/test_tpu.py',),
    'beam': ('launch/test_summarize_beam.py',),
    'peers': (
        'hugging_face/test_tokenizers.py',
        'hugging_face/test_transformers.py',
    ),
    'bench': ('bench',),
    'papers': (
        'papers',
        'evaluation/test_compare_predictions.py',
    ),
    'launch': ('launch',),
    'wheel': (
        'test_attributes.py',
        'test_requirements.py',
        'test_wheel.py',
    ),
    'docs': (
        'data/test_builtin_corpus.py',
        'data/test_inspect.py',
        'summarizing/test_builtin.py',
        'test_ci.py',
        'test_command_list.py',
        'test_configs.py',
        'test_contributing.py',
        'test_layering.py',
        'test_notebooks.py',
        'test_readme.py',
        'test_sizes.py',
    ),
    'pages': ('attribution',),
    'faults': (
        'config/test_object_store.py',
        'data/test_cache_damage.py',
        'devices/test_compiling.py',
        'devices/test_hosts.py',
        'devices/test_watchdog.py',
        'hugging_face/test_hub.py',
        'runs/test_bucket_workdir.py',
        'runs/test_faults.py',
        'runs/test_preflight.py',
        'summarizing/test_outputs.py',
        'summarizing/test_summarize_again.py',
        'test_files.py',
        'workdir/test_lease.py',
        'workdir/test_lock.py',
        'workdir/test_pruned.py',
    ),
    'messages': (
        'config',
        'hugging_face/test_changed_releases.py',
        'hugging_face/test_convert_refuses.py',
        'runs/test_stored_settings.py',
        'summarizing/test_hostile_documents.py',
        'summarizing/test_messages.py',
        'summarizing/test_page_texts.py',
        'vocabularies/test_unknown.py',
    ),
    'simcas': (
        'generation/test_compact_memory.py',
        'models/test_simcas.py',
        'runs/test_evaluate_simcas.py',
    ),
    # An environment like Colab's, which takes minutes to install.
    'colab': (),
    # Further parameters of products of options.
    'products': (),
    'heads': (
        'models/test_copy_head.py',
        'models/test_head.py',
    ),
    'mesh': (
        'ops/test_mesh.py',
        'training/test_page_mesh.py',
    ),
    'runs': (
        'data/test_corpora.py',
        'data/test_file_formats.py',
        'data/test_seqio_tasks.py',
        'runs/test_bucket_runs.py',
        'runs/test_by_length.py',
        'runs/test_cut_documents.py',
        'runs/test_dry_run.py',
        'runs/test_evaluate_command.py',
        'runs/test_main.py',
        'runs/test_old_runs.py',
        'runs/test_other_models.py',
        'runs/test_recipes.py',
        'runs/test_run_numbers.py',
        'telemetry',
    ),
    'summaries': (
        'documents',
        'summarizing',
    ),
    'memory': (
        'devices/test_memory.py',
        'models/test_flops.py',
        'models/test_low_memory_encoder.py',
        'models/test_mixers.py',
        'ops/test_tokenwise.py',
    ),
    'weights': (
        'hugging_face',
        'models/test_lora.py',
        'training/test_warm_start.py',
    ),
}


def stage_of(path, is_slow=False):
  """Returns the stage of a test file, or None for a slow test of the core.

  path: of the file, relative to tests/, with '/'.
  """
  for stage, rows in TABLE.items():
    if any(path == row or path.startswith(f'{row}/') for row in rows):
      return stage
  return None if is_slow else CORE


def is_read(path, expression):
  """Whether a file may have tests that `pytest -m expression` selects."""
  return expression != DEFAULT or stage_of(path) == CORE


# Files that take longest: start them first, so that no process ends with one.
LONGEST = (
    'test_readme',
    'test_notebooks',
    'test_page_mesh',
    'test_faults',
    'test_models',
    'test_golden',
    'test_bench',
    'test_mesh',
)


def pytest_configure(config):
  """Declares the stages; without a path and without -m, selects the core."""
  for stage in (CORE, *TABLE):
    config.addinivalue_line(
        'markers', f'{stage}: see TABLE in tests/conftest.py'
    )
  # Workers of pytest-xdist parse the command line anew.
  is_whole = config.args_source != pytest.Config.ArgsSource.ARGS
  if is_whole and config.option.markexpr == FAST:
    config.option.markexpr = DEFAULT
  if hasattr(config, 'workerinput'):
    return
  files = [path for path in PROGRAMS.rglob('*') if path.is_file()]
  if sum(path.stat().st_size for path in files) > MOST_BYTES:
    shutil.rmtree(PROGRAMS, ignore_errors=True)


def _relative(path):
  return path.relative_to(HERE).as_posix()


def pytest_ignore_collect(collection_path, config):
  """Does not import the files of other stages if only the core is run."""
  path, expression = Path(collection_path), config.option.markexpr
  if path.suffix == '.py' and HERE in path.parents:
    if not is_read(_relative(path), expression):
      return True
  return None


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items):
  """Marks each test with its stage; moves the slowest files to the front."""
  for item in items:
    if not any(item.get_closest_marker(stage) for stage in TABLE):
      is_slow = item.get_closest_marker('slow') is not None
      stage = stage_of(_relative(item.path), is_slow)
      if stage:
        item.add_marker(stage)

  def rank(item):
    name = item.path.stem
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)

  items.sort(key=rank)


@pytest.fixture
def guard():
  """Ends a test that hangs, as some values used to."""
  with deadline.within():
    yield


@pytest.fixture
def small_model_config():
  """A `config.model` of about 60K parameters."""
  config = default.get_config().model
  config.update(vocab_size=60, d_model=32, d_state=8, d_ff=64, d_kv=8)
  config.update(num_heads=4, num_layers=2, num_decoder_layers=2)
  return config


@pytest.fixture
def bucket(tmp_path, monkeypatch):
  """An empty `bucket_server.Bucket`; copies lie below tmp_path/home."""
  # pylint: disable=g-import-not-at-top
  from locost_jax.config import object_store
  from tests import bucket_server

  for name, value in {
      **bucket_server.ENVIRONMENT,
      'XDG_CACHE_HOME': str(tmp_path / 'home'),
  }.items():
    monkeypatch.setenv(name, value)
  quick = dict(max_retries=3, initial_delay='10ms', max_delay='20ms')
  monkeypatch.setattr(object_store, 'RETRIES', quick)
  object_store.FOUND.clear()
  served = bucket_server.Bucket()
  monkeypatch.setenv('TENSORSTORE_GCS_HTTP_URL', served.url)
  object_store.Bucket.cache_clear()
  yield served
  served.close()
  object_store.FOUND.clear()


@pytest.fixture
def run_command(capfd):
  """Runs a command in this process.

  run_command(module, *arguments) -> (status, stdout, stderr).
  """
  from locost_jax.config import commands  # pylint: disable=g-import-not-at-top

  def run_command(module, *arguments):
    name = module.__name__.rpartition('.')[2]
    with pytest.raises(SystemExit) as end:
      commands.run(
          module.main,
          module.define_flags,
          module.__doc__,
          [name, *map(str, arguments)],
      )
    out, err = capfd.readouterr()
    return end.value.code or 0, out, err

  return run_command


@pytest.fixture
def succeed(run_command):
  """succeed(module, *arguments) -> (stdout, stderr), of status 0."""

  def succeed(module, *arguments):
    status, out, err = run_command(module, *arguments)
    assert status == 0, err
    return out, err

  return succeed


# These look at programs, how they compile, or where they are kept.
COMPILED_ANEW = (
    'config/test_speed.py',
    'summarizing/test_summarize_again.py',
)


@pytest.fixture(scope='module', autouse=True)
def forget_programs(request):
  """Keeps the programs of a file on disk only, for the next time.

  CI has no next time, and looking for programs takes a fifth of a test's time.
  """
  import jax  # pylint: disable=g-import-not-at-top
  from jax.experimental.compilation_cache import compilation_cache  # pylint: disable=g-import-not-at-top

  is_kept = _relative(request.path) not in COMPILED_ANEW
  is_kept &= 'CI' not in os.environ
  jax.config.update(
      'jax_compilation_cache_dir', str(PROGRAMS) if is_kept else None
  )
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.1)
  jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)
  compilation_cache.reset_cache()  # it reads the settings once
  yield
  jax.clear_caches()
