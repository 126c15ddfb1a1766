"""The wheel contains all that commands need outside of a checkout."""

import os
from pathlib import Path
import shutil
import subprocess
import sys
import zipfile

import pytest

from tests.runs import test_main

ROOT = Path(__file__).parent.parent
PARTS = 'setup.py setup.cfg pyproject.toml README.md LICENSE'.split()
# Files in the wheel: code, web pages, built-in models.
KINDS = '.py .typed .html .css .js .md .json .model .safetensors'.split()
MINE = """
from configs import default


def get_config():
  config = default.get_config()
  config.data.vocabulary = 'byte'
  return config
"""


def copy_checkout(target, *more):
  """Copies what a wheel is made of, and more folders; returns the target."""
  leave_out = shutil.ignore_patterns('__pycache__')
  for name in 'locost_jax', 'configs', *more:
    shutil.copytree(ROOT / name, target / name, ignore=leave_out)
  for name in PARTS:
    shutil.copy(ROOT / name, target / name)
  return target


@pytest.fixture(scope='module')
def installed(tmp_path_factory):
  """A directory with the installed wheel, without its dependencies."""
  directory = tmp_path_factory.mktemp('wheel')
  source = copy_checkout(directory / 'source', 'bench')
  pip = [sys.executable, '-m', 'pip', '-q', '--disable-pip-version-check']
  build = ['wheel', '--no-deps', '--no-build-isolation', '-w', directory]
  run([*pip, *build, source], directory)
  (wheel,) = directory.glob('*.whl')
  target = directory / 'installed'
  run([*pip, 'install', '--no-deps', '--target', target, wheel], directory)
  return target


def test_an_editable_install_is_not_hidden_by_the_checkout(tmp_path):
  """In the directory above a checkout that is called locost_jax."""
  checkout = copy_checkout(tmp_path / 'locost_jax')
  build = 'import setuptools.build_meta as b; b.build_editable("..")'
  run([sys.executable, '-c', build], checkout)
  (wheel,) = tmp_path.glob('*.whl')
  with zipfile.ZipFile(wheel) as file:
    (path,) = [name for name in file.namelist() if name.endswith('.pth')]
    (tmp_path / 'site').mkdir()
    (tmp_path / 'site' / path).write_bytes(file.read(path))
  # As Python reads the installed packages, and then the current directory.
  program = (
      'import site, sys; sys.path = [p for p in sys.path if p != sys.argv[1]]; '
      'site.addsitedir(sys.argv[2]); import locost_jax; '
      'print(locost_jax.__file__, locost_jax.load)'
  )
  found = run(
      [sys.executable, '-c', program, ROOT, tmp_path / 'site'],
      tmp_path,
      PYTHONPATH='',
  )
  assert found.startswith(str(checkout / 'locost_jax' / '__init__.py'))


def run(command, directory, **environment):
  done = subprocess.run(
      list(map(str, command)),
      cwd=directory,
      capture_output=True,
      text=True,
      timeout=300,
      env={**os.environ, **{k: str(v) for k, v in environment.items()}},
  )
  assert done.returncode == 0, done.stderr
  return done.stdout


def command(installed, directory, name, *arguments):
  """Runs a command of the installed wheel in a directory."""
  return run(
      [sys.executable, '-m', f'locost_jax.{name}', *arguments],
      directory,
      PYTHONPATH=str(installed),
  )


def test_the_wheel_has_all_files(installed):
  expected = {
      path.relative_to(ROOT)
      for path in (ROOT / 'locost_jax').rglob('*')
      if path.suffix in KINDS
  } | {
      Path('locost_jax') / path.relative_to(ROOT)
      for path in (ROOT / 'configs').glob('*.py')
  }
  there = {
      path.relative_to(installed)
      for path in (installed / 'locost_jax').rglob('*')
      if path.suffix in KINDS
  }
  assert there == expected
  # Other packages use these names, or only a checkout has them.
  for name in 'configs', 'bench', 'papers':
    assert not (installed / name).exists()


def test_configs_of_the_wheel_and_of_the_user(installed, tmp_path):
  """Dry runs with each, in a directory without configs."""
  data = tmp_path / 'data.jsonl'
  test_main.write_rows(data, test_main.pairs(0, 20))
  arguments = [
      f'--config.data.train_files={data}',
      '--config.data.vocabulary=byte',
      *test_main.SMALL,
      '--dry_run',
      '--format=json',
  ]
  empty, own = tmp_path / 'empty', tmp_path / 'own'
  empty.mkdir()
  config = '--config=configs/finetune.py'
  out = command(installed, empty, 'main', config, *arguments)
  assert '"phases"' in out and not any(empty.iterdir())
  # A user's config in a directory of the same name.
  (own / 'configs').mkdir(parents=True)
  (own / 'configs' / '__init__.py').write_text('')
  (own / 'configs' / 'mine.py').write_text(MINE)
  config = '--config=configs/mine.py'
  out = command(installed, own, 'main', config, *arguments)
  assert '"phases"' in out
