"""Settings and fixtures of all tests: CPU only, and a small LOCOST."""

import os

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
# Tests neither share compiled programs nor use the user's.
os.environ.setdefault('LOCOST_JAX_CACHE', 'off')
# Tests compile many programs and run each briefly, so optimise little. Set
# XLA_FLAGS to override: `XLA_FLAGS= python -m pytest` tests users' programs.
os.environ.setdefault(
    'XLA_FLAGS',
    '--xla_llvm_disable_expensive_passes=true '
    '--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false '
    '--xla_cpu_parallel_codegen_split_count=1',
)

import pytest  # pylint: disable=g-import-not-at-top

from configs import default
from locost_jax.devices import compiling

compiling.SECONDS = 1000.0  # a busy machine does not change what is printed

# Files that take minutes: start them first, so that no process ends with one.
LONGEST = (
    'test_readme',
    'test_notebooks',
    'test_mesh_step',
    'test_faults',
    'test_models',
    'test_golden',
    'test_bench',
    'test_mesh',
)


def pytest_collection_modifyitems(items):
  """Moves the slowest files to the front; keeps the order of the others."""

  def rank(item):
    name = item.path.stem
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)

  items.sort(key=rank)


@pytest.fixture
def small_model_config():
  """A `config.model` of about 60K parameters."""
  config = default.get_config().model
  config.update(
      dict(
          vocab_size=60,
          d_model=32,
          d_state=8,
          d_ff=64,
          d_kv=8,
          num_heads=4,
          num_layers=2,
          num_decoder_layers=2,
      )
  )
  return config


@pytest.fixture
def run_command(capfd):
  """Runs a command in this process.

  run_command(module, *arguments) -> (status, stdout, stderr).
  """
  from locost_jax.command_line import commands  # pylint: disable=g-import-not-at-top

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


@pytest.fixture(scope='module', autouse=True)
def forget_programs():
  """Frees the compiled programs of a file, which the next does not use."""
  yield
  import jax  # pylint: disable=g-import-not-at-top

  jax.clear_caches()
