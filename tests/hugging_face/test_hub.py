"""Models by their name on the Hub: when and what is downloaded."""

import json
import os
from pathlib import Path
import re
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
from locost_jax.training import warm_start
from locost_jax.workdir import find
from tests import hub_server
from tests import tiny_run
from tests.hugging_face import converting

ROOT = Path(__file__).parents[2]
NAME = 'org/tiny'
NOT_NEEDED = 'pytorch_model.bin', 'flax_model.msgpack', 'README.md'
NOT_NEEDED += ('modeling_locost.py',)  # code is not even downloaded
COMMITS = {'main': 'a' * 40, 'v1': 'b' * 40}


@pytest.fixture(scope='module')
def released(tmp_path_factory):
  """An exported tiny model, and files of a repository that are not needed."""
  home = tmp_path_factory.mktemp('hub')
  tiny_run.make(home / 'run')
  run = find.find_run(home / 'run')
  convert_weights.export_run(*run, home / 'out', 'float32')
  converting.shard(home / 'out')
  for name in NOT_NEEDED:
    (home / 'out' / name).write_bytes(b'nothing')
  return home / 'out'


@pytest.fixture
def close_sockets(monkeypatch):
  """Allows no connection in this test."""

  def refuse(*_, **__):
    raise OSError('sockets are closed')

  monkeypatch.setattr(socket.socket, 'connect', refuse)
  monkeypatch.setattr(socket, 'getaddrinfo', refuse)


@pytest.mark.parametrize(
    'name', ('org/name@main', 'runs/quickstrat', './org/name', 't5-small', '')
)
def test_a_mistyped_path_makes_no_connection(
    close_sockets, tmp_path, monkeypatch, run_command, name
):
  """The message explains both ways to name a model on the Hub."""
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
  for load in locost_jax.load, warm_start.read:
    with pytest.raises(InputError, match='no such directory; .* hf://org/name'):
      load(name)


def test_invalid_names_on_the_hub(close_sockets):
  names = ' name a/b/c ../x a/b@ a/b@../../x a/b@/x a/b@x//y'
  for name in names.split(' '):
    with pytest.raises(InputError, match='expected hf://org/name or hf://org'):
      hub.find_directory(f'hf://{name}', allow_download=True)


def test_which_files_of_a_repository_are_chosen():
  common = ['config.json', 'generation_config.json', 'spiece.model']
  rest = (
      'README.md tf_model.h5 flax_model.msgpack rust_model.ot .gitattributes '
      'onnx/model.onnx training_args.bin'
  ).split()
  pickles = ['pytorch_model.bin']
  shards = [f'model-0000{i}-of-00002.safetensors' for i in (1, 2)]
  index = ['model.safetensors.index.json']
  choose = lambda *names: sorted(hub.choose_files(sum(names, rest), NAME))
  for weights in ['model.safetensors'], shards + index:
    assert choose(common, pickles, weights) == sorted(common + weights)
  assert choose(common, pickles) == sorted(common + pickles)
  with pytest.raises(InputError, match='org/tiny: holds no weights; expected'):
    choose(common)
  with pytest.raises(InputError, match='org/tiny: holds no config.json'):
    choose(pickles)


@pytest.fixture
def server(released):
  server = hub_server.Hub(released, NAME, COMMITS)
  yield server
  server.close()


@pytest.fixture
def find_model(server, tmp_path):
  """find_model(name, ...) -> (status, stdout, stderr) of hub.find_directory.

  Runs in a separate process with huggingface_hub's client.
  """
  pytest.importorskip('huggingface_hub', reason='needs the extra `hub`')

  def find_model(*arguments, setup='', stderr=subprocess.PIPE):
    program = (
        'import sys\n'
        'from huggingface_hub import constants\n'
        'constants.DOWNLOAD_CHUNK_SIZE = 1000\n'
        'from locost_jax.config import commands\n'
        'from locost_jax.hugging_face import hub\n'
        f'{setup}\n'
        'with commands.one_line_errors():\n'
        '  print(hub.find_directory(*sys.argv[1:]))'
    )
    paths = dict(HF_ENDPOINT=server.url, HF_HOME=str(tmp_path / 'hf'))
    done = subprocess.run(
        [sys.executable, '-c', program, *arguments],
        env={**os.environ, 'PYTHONPATH': str(ROOT), **paths},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        cwd=tmp_path,
    )
    err = (done.stderr or '').strip()
    assert 'Traceback' not in err, err
    return done.returncode, done.stdout.strip(), err

  return find_model


def test_downloads_what_is_needed_and_keeps_it(
    server, find_model, released, tmp_path
):
  """Uses real sockets; a second call downloads nothing."""
  needed = sorted({path.name for path in released.iterdir()} - set(NOT_NEEDED))
  size = sum((released / name).stat().st_size for name in needed)
  for name, commit in ((f'{NAME}@v1', 'b' * 40), (NAME, 'a' * 40)):
    status, directory, err = find_model(f'hf://{name}')
    lines = err.splitlines()
    assert (status, lines[-1]) == (0, f'{NAME}@{commit}'), err
    if commit[0] == 'b':  # another commit with the same files
      assert lines[0] == (
          f'hf://{name}: downloads {len(needed)} files, {size / 1e6:.1f} MB'
      )
    assert len(lines) == 1 + (commit[0] == 'b')
    assert find_model(name, 'allow') == (status, directory, lines[-1])
    assert Path(directory).name == commit
    found = sorted(path.name for path in Path(directory).iterdir())
    assert found == needed
    for file in needed:
      data = (Path(directory) / file).read_bytes()
      assert data == (released / file).read_bytes()
  text = 'A text to read.'
  assert locost_jax.load(directory).summarize(text) == (
      locost_jax.load(released).summarize(text)
  )
  count = len(server.requests)
  # A directory of that name is used if downloads are only allowed.
  shutil.copytree(released, tmp_path / 'org' / 'tiny')
  assert find_model(NAME) == find_model(NAME, 'allow') == (0, NAME, '')
  shutil.rmtree(tmp_path / 'org')
  assert len(server.requests) == count
  server.close()
  # Without the server, the cache is used, by branch, tag and commit.
  for name, commit in (
      (f'{NAME}@v1', 'b' * 40),
      (NAME, 'a' * 40),
      (f'{NAME}@{"a" * 40}', 'a' * 40),
  ):
    status, kept, err = find_model(f'hf://{name}')
    assert (status, err) == (0, f'{NAME}@{commit}')
    assert Path(kept).name == commit


def test_a_page_or_a_file_is_no_model():
  for name, line in (
      ('https://huggingface.co/org/tiny', 'is a page; expected hf://org/tiny'),
      (__file__, 'is a file; expected a directory'),
  ):
    with pytest.raises(InputError, match=f'^{re.escape(name)}: {line}$'):
      hub.find_directory(name)


def test_other_programs_find_the_download(find_model, monkeypatch):
  """The cache has huggingface_hub's layout."""
  import huggingface_hub

  status, directory, err = find_model(f'hf://{NAME}')
  assert status == 0, err
  found = huggingface_hub.snapshot_download(
      NAME,
      cache_dir=Path(directory).parents[2],
      local_files_only=True,
      allow_patterns=['config.json', '*.safetensors'],
  )
  assert found == directory


@pytest.fixture
def shard(released):
  """The largest file of weights."""
  return max(released.glob('*.safetensors'), key=lambda x: x.stat().st_size)


def test_a_cut_connection_continues_by_itself(server, find_model, shard):
  server.faults[shard.name] = [hub_server.Fault(cut=3_500)]
  status, directory, err = find_model(f'hf://{NAME}')
  assert status == 0 and err.count('\n') == 1, err
  assert [x for x in server.ranges if x[0] == shard.name] == [
      (shard.name, None),
      (shard.name, 'bytes=3000-'),  # pieces of 1,000 bytes are written
  ]
  assert (Path(directory) / shard.name).read_bytes() == shard.read_bytes()


@pytest.mark.parametrize('kind', ('large', 'small'))
def test_a_wrong_checksum_is_refused(server, find_model, shard, kind, tmp_path):
  """SHA-256 for files in LFS, git's SHA-1 for others."""
  name = shard.name if kind == 'large' else 'config.json'
  server.faults[name] = [hub_server.Fault(damage=True)]
  status, out, err = find_model(f'hf://{NAME}')
  assert (status, out) == (2, '')
  assert err.count('\n') == 1 and f'{NAME}: {name}: its checksum is ' in err
  assert 'the same command downloads it again' in err
  assert not left_in(tmp_path, name, shard)
  status, directory, _ = find_model(f'hf://{NAME}')
  assert status == 0
  assert (Path(directory) / shard.name).read_bytes() == shard.read_bytes()


GATED = hub_server.Fault(status=403, code='GatedRepo')
LOGIN, BROKEN = hub_server.Fault(status=401), hub_server.Fault(status=500)


@pytest.mark.parametrize(
    'name, place, fault, message',
    (
        ('org/other', '', None, 'the Hub has no model of this name, or it is'),
        (f'{NAME}@v9', '', None, 'the model has no branch, tag or commit'),
        (NAME, '', GATED, 'accept its terms at https://huggingface.co/org/tin'),
        (NAME, 'config.json', GATED, 'access to this model is restricted'),
        (NAME, 'config.json', LOGIN, 'the Hub refused the login (401)'),
        (NAME, '', BROKEN, 'the Hub answered 500: try'),
    ),
)
def test_each_error_has_its_own_message(
    server, find_model, name, place, fault, message
):
  if fault:
    server.faults[place] = [fault] * 9
  status, out, err = find_model(f'hf://{name}')
  last = err.splitlines()[-1]
  assert (status, out) == (2, '') and f'error: hf://{name}: ' in last, err
  assert message in last and 'no answer' not in last
  assert len(err.splitlines()) == 1 + (place != '')


def test_no_room_on_the_disk(find_model, server):
  """Nothing is downloaded if the disk is known to be too small."""
  no_room = (
      'import shutil\n'
      'shutil.disk_usage = lambda path: shutil._ntuple_diskusage(9, 9, 7)'
  )
  status, _, err = find_model(f'hf://{NAME}', setup=no_room)
  assert status == 2 and err.count('\n') == 0
  assert ' has 0.0 MB left: free some space, or set HF_HOME' in err
  assert server.ranges == []


def test_a_slow_answer_shows_progress(server, find_model, shard):
  """A terminal shows a bar and the bytes."""
  server.faults[shard.name] = [hub_server.Fault(seconds=2)]
  main, terminal = os.openpty()
  status, directory, _ = find_model(f'hf://{NAME}', stderr=terminal)
  os.close(terminal)
  shown = os.read(main, 100_000).decode()
  os.close(main)
  assert status == 0 and Path(directory).is_dir()
  line = r'downloading  (?:[━╌]+  )?[\d.]+ of [\d.]+ MB'
  assert len(re.findall(line, shown)) >= 3, shown


def left_in(tmp_path, *names):
  """Returns the files of a cache that are, or link to, unchecked downloads."""
  return [
      path
      for path in (tmp_path / 'hf').rglob('*')
      if path.is_file() and (len(path.name) > 64 or path.parent.name in names)
  ] + list((tmp_path / 'hf').rglob('snapshots'))


@pytest.mark.parametrize(
    'change, words',
    (
        (dict(sha='../../../../x'), 'the commit "../../../../x"; expected 40'),
        (dict(sha='A' * 40), 'expected 40 hex digits'),
        (dict(sha='a' * 39 + '\n'), 'expected 40 hex digits'),
        (dict(sha=None), 'the commit null; expected 40 hex digits'),
        (dict(siblings=None), 'holds no config.json'),
        (dict(siblings=[{}]), "the Hub's answer cannot be read"),
        (dict(siblings=3), "the Hub's answer cannot be read"),
        (dict(sibling=dict(size=-1)), 'the Hub gives no size'),
        (dict(sibling=dict(size='9')), 'the Hub gives no size'),
        (dict(sibling=dict(blobId='../x')), 'no size or no checksum'),
        (dict(sibling=dict(blobId=7)), 'no size or no checksum'),
    ),
)
def test_answers_that_are_no_model(server, find_model, tmp_path, change, words):
  server.change = change
  status, out, err = find_model(f'hf://{NAME}')
  assert (status, out, err.count('\n')) == (2, '', 0), err
  assert err.startswith(f'error: hf://{NAME}: ') and words in err
  assert not [path for path in tmp_path.rglob('*') if path.is_file()]


def test_another_commit_than_asked_for_is_refused(server, find_model):
  server.change = dict(sha='c' * 40)
  _, _, err = find_model(f'hf://{NAME}@{"a" * 40}')
  assert err.endswith(f'the commit "{"c" * 40}"; expected {"a" * 40}')


@pytest.mark.parametrize('announce', (True, False))
def test_a_file_longer_than_announced_is_stopped(
    server, find_model, shard, tmp_path, announce
):
  """With and without a Content-Length; 1 GB is never written."""
  server.faults[shard.name] = [hub_server.Fault(more=10**9, announce=announce)]
  status, _, err = find_model(f'hf://{NAME}')
  size = shard.stat().st_size
  assert status == 2 and f'{shard.name}: longer than the {size:,} bytes' in err
  assert server.sent < 10**8
  assert not left_in(tmp_path, shard.name)
  status, directory, _ = find_model(f'hf://{NAME}')
  assert status == 0
  assert (Path(directory) / shard.name).read_bytes() == shard.read_bytes()


def test_a_token_is_in_no_message(server, find_model):
  """Neither one that the HTTP client refuses nor one that the Hub returns."""
  for token in 'hf_se\x01cret', 'hf_secret':
    setup = f'import os\nos.environ["HF_TOKEN"] = {token!r}'
    server.faults[''] = [hub_server.Fault(status=401, code='hf_secret')] * 9
    status, _, err = find_model(f'hf://{NAME}', setup=setup)
    assert status == 2 and 'cret' not in err, err
  assert 'Bearer hf_secret' in server.tokens


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
  with pytest.raises(
      InputError, match='no answer from https://huggingface.co: wit'
  ):
    locost_jax.load('hf://org/name@main')
  monkeypatch.setitem(sys.modules, 'huggingface_hub', None)
  with pytest.raises(InputError, match=r'pip install "locost_jax\[hub\]", or'):
    locost_jax.load('org/name', allow_download=True)


def test_local_directories_need_no_network(
    released, close_sockets, tmp_path, succeed
):
  """No socket is opened while they are loaded and used."""
  places = f'--source={released}', f'--target={tmp_path / "run"}'
  out, _ = succeed(convert, *places, '--format=json')
  assert json.loads(out)['direction'] == 'run'
  text = tmp_path / 'text.txt'
  text.write_text('A text to read.')
  want = locost_jax.load(released).summarize('A text to read.')[0]
  for checkpoint in (released, tmp_path / 'run'):
    out, _ = succeed(summarize, f'--checkpoint={checkpoint}', text)
    assert out.strip() == f'{want.strip()} (cut at 6 tokens)'
