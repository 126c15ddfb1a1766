"""Models by their name on the Hub: when it is asked, for what, and when not."""

import json
import os
from pathlib import Path
import shutil
import socket
import subprocess
import sys

import pytest

import locost_jax
from locost_jax import convert
from locost_jax import summarize
from locost_jax.errors import InputError
from locost_jax.hugging_face import hub
from locost_jax.runs import convert_weights
from locost_jax.training import init_from
from locost_jax.workdir import find
from tests import hub_server
from tests import tiny_run

ROOT = Path(__file__).parents[2]
NAME = 'org/tiny'
COMMITS = {'main': 'a' * 40, 'v1': 'b' * 40}


@pytest.fixture(scope='module')
def released(tmp_path_factory):
  """An exported tiny model, and files of its repository nobody needs."""
  home = tmp_path_factory.mktemp('hub')
  tiny_run.make(home / 'run')
  convert_weights.export_run(
      *find.find_run(home / 'run'), home / 'out', 'float32', 9_000
  )
  for name in ('pytorch_model.bin', 'flax_model.msgpack', 'README.md'):
    (home / 'out' / name).write_bytes(b'nothing')
  return home / 'out'


@pytest.fixture
def close_sockets(monkeypatch):
  """No connection can be made in this test but within this machine's kernel.

  (Event loops wake themselves through a pair of Unix sockets.)
  """

  def refuse(*_, **__):
    raise OSError('sockets are closed')

  class Closed(socket.socket):

    def __init__(self, family=-1, *args, **kwargs):
      if family != socket.AF_UNIX:
        refuse()
      super().__init__(family, *args, **kwargs)

  monkeypatch.setattr(socket, 'socket', Closed)
  monkeypatch.setattr(socket, 'create_connection', refuse)
  monkeypatch.setattr(socket, 'getaddrinfo', refuse)


@pytest.mark.parametrize(
    'name',
    (
        'org/name',
        'org/name@main',
        'runs/quickstrat',
        './org/name',
        '/no/such/place',
        't5-small',
        '',
    ),
)
def test_a_path_with_a_mistake_stays_here(
    close_sockets, tmp_path, monkeypatch, run_command, name
):
  """No socket is made, and the line has both ways to name the Hub."""
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'text.txt').write_text('A text.')
  for command, flags in (
      (convert, [f'--source={name}', '--target=run']),
      (summarize, [f'--checkpoint={name}', 'text.txt']),
  ):
    status, out, err = run_command(command, *flags)
    assert (status, out, err.count('\n')) == (2, '', 1), err
    if name:
      assert err == (
          f'error: {name}: no such directory; a model on the Hugging Face Hub '
          'is hf://org/name[@revision], or org/name with --allow_download\n'
      )
  for load in locost_jax.load, init_from.read:
    with pytest.raises(InputError, match='no such directory; .* hf://org/name'):
      load(name)


@pytest.mark.parametrize(
    'name', ('hf://', 'hf://name', 'hf://a/b/c', 'hf://../x', 'hf://a/b@')
)
def test_what_is_no_name_on_the_hub(close_sockets, name):
  with pytest.raises(InputError, match='expected hf://org/name or hf://org'):
    hub.find_directory(name, allow_download=True)


def test_what_is_chosen_of_a_repository():
  common = ['config.json', 'generation_config.json', 'spiece.model']
  rest = [
      'README.md',
      'tf_model.h5',
      'flax_model.msgpack',
      'rust_model.ot',
      '.gitattributes',
      'onnx/model.onnx',
      'training_args.bin',
  ]
  pickles = ['pytorch_model.bin']
  shards = [f'model-0000{i}-of-00002.safetensors' for i in (1, 2)]
  index = ['model.safetensors.index.json']
  choose = lambda *names: sorted(hub.choose_files(sum(names, rest), NAME))
  assert choose(common, pickles, ['model.safetensors']) == sorted(
      [*common, 'model.safetensors']
  )
  assert choose(common, pickles, shards, index) == sorted(
      [*common, *shards, *index]
  )
  assert choose(common, pickles) == sorted(common + pickles)
  with pytest.raises(InputError, match='org/tiny: holds no weights; expected'):
    choose(common)
  with pytest.raises(InputError, match='org/tiny: holds no config.json'):
    choose(pickles)


def test_downloads_what_is_needed_and_keeps_it(released, tmp_path):
  """The Hub's own client against a server here: asked once, then never."""
  pytest.importorskip('huggingface_hub', reason='needs the extra `hub`')
  server = hub_server.Hub(released, NAME, COMMITS)
  environment = {
      **os.environ,
      'HF_ENDPOINT': server.url,
      'HF_HOME': str(tmp_path / 'hf'),
      'HF_HUB_DISABLE_PROGRESS_BARS': '1',
      'PYTHONPATH': str(ROOT),
  }

  def find(*arguments):
    done = subprocess.run(
        [
            sys.executable,
            '-c',
            'import sys\n'
            'from locost_jax.command_line import commands\n'
            'from locost_jax.hugging_face import hub\n'
            'with commands.one_line_errors():\n'
            '  print(hub.find_directory(*sys.argv[1:]))',
            *arguments,
        ],
        env=environment,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert 'Traceback' not in done.stderr, done.stderr
    return done.returncode, done.stdout.strip(), done.stderr.strip()

  for name, commit in ((f'{NAME}@v1', 'b' * 40), (NAME, 'a' * 40)):
    status, directory, err = find(f'hf://{name}')
    assert find(name, 'allow') == (status, directory, err)
    assert (status, err) == (0, f'{NAME}@{commit}'), err
    assert Path(directory).name == commit
    found = sorted(path.name for path in Path(directory).iterdir())
    needed = sorted(
        path.name
        for path in released.iterdir()
        if path.name
        not in ('pytorch_model.bin', 'flax_model.msgpack', 'README.md')
    )
    assert found == needed
    for file in needed:
      assert (Path(directory) / file).read_bytes() == (
          released / file
      ).read_bytes()
  text = 'A text to read.'
  assert locost_jax.load(directory).summarize(text) == (
      locost_jax.load(released).summarize(text)
  )
  for bad in ('org/other', f'{NAME}@v9'):
    status, _, err = find(f'hf://{bad}')
    assert status == 2 and err.count('\n') == 0
    assert f'hf://{bad}: the Hub has no such model or revision' in err
  asked = len(server.asked)
  # A directory of that name wins where downloads are only allowed.
  shutil.copytree(released, tmp_path / 'org' / 'tiny')
  assert find(NAME) == find(NAME, 'allow') == (0, NAME, '')
  shutil.rmtree(tmp_path / 'org')
  assert len(server.asked) == asked
  server.close()
  # Without the server: what was kept, by branch, tag and commit.
  for name, commit in (
      (f'{NAME}@v1', 'b' * 40),
      (NAME, 'a' * 40),
      (f'{NAME}@{"a" * 40}', 'a' * 40),
  ):
    status, kept, err = find(f'hf://{name}')
    assert (status, err) == (0, f'{NAME}@{commit}')
    assert Path(kept).name == commit
  status, _, err = find('hf://org/new')
  assert status == 2 and err.count('\n') == 0
  assert (
      'hf://org/new: no network: download '
      'https://huggingface.co/org/new by hand into DIR and pass DIR'
  ) in err


def test_a_name_without_a_network_is_one_line(
    close_sockets, tmp_path, monkeypatch, run_command
):
  pytest.importorskip('huggingface_hub', reason='needs the extra `hub`')
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'text.txt').write_text('A text.')
  for command, flags in (
      (convert, ['--source=hf://org/name', '--target=run']),
      (convert, ['--source=org/name', '--target=run', '--allow_download']),
      (summarize, ['--checkpoint=hf://org/name', 'text.txt']),
  ):
    status, out, err = run_command(command, *flags)
    assert (status, out, err.count('\n')) == (2, '', 1), err
    assert (
        'https://huggingface.co/org/name by hand into DIR and pass DIR '
        '(sockets are closed)'
    ) in err
  assert [path.name for path in tmp_path.iterdir()] == ['text.txt']
  with pytest.raises(InputError, match='no network'):
    locost_jax.load('hf://org/name@main')
  monkeypatch.setitem(sys.modules, 'huggingface_hub', None)
  with pytest.raises(InputError, match=r'pip install "locost_jax\[hub\]", or'):
    locost_jax.load('org/name', allow_download=True)


def test_local_directories_need_no_network(
    released, close_sockets, tmp_path, run_command
):
  """Nor is it looked for: no socket is made while they are loaded and used."""
  status, out, err = run_command(
      convert,
      f'--source={released}',
      f'--target={tmp_path / "run"}',
      '--format=json',
  )
  assert status == 0, err
  assert json.loads(out)['direction'] == 'run'
  text = tmp_path / 'text.txt'
  text.write_text('A text to read.')
  want = locost_jax.load(released).summarize('A text to read.')[0]
  for checkpoint in (released, tmp_path / 'run'):
    status, out, err = run_command(
        summarize, f'--checkpoint={checkpoint}', text
    )
    assert status == 0, err
    assert out.strip() == want.strip()
