"""Models by their name on the Hub: when and what is downloaded."""

import hashlib
import json
import os
from pathlib import Path
import re
import shutil
import socket
import subprocess
import sys
import urllib.parse

import pytest

import locost_jax
from locost_jax import convert
from locost_jax import summarize
from locost_jax.errors import InputError
from locost_jax.hugging_face import hub
from locost_jax.runs import convert_weights
from locost_jax.training import warm_start
from locost_jax.workdir import find
from tests import bucket_server
from tests import tiny_run
from tests.hugging_face import converting

ROOT = Path(__file__).parents[2]
NAME = 'org/tiny'
COMMITS = {'main': 'a' * 40, 'v1': 'b' * 40}
COMMITS |= {commit: commit for commit in COMMITS.values()}


class Hub(bucket_server.Server):
  """Serves a directory's files as the model NAME; its url is HF_ENDPOINT.

  Attributes:
    requests: the paths of all requests so far.
    tokens: their Authorization headers.
    faults: {file name, or '' for the model: (status, X-Error-Code)}.
  """

  def __init__(self, directory):
    self._directory = directory
    self.requests, self.tokens, self.faults = [], [], {}
    super().__init__()

  def answer(self, request):
    """Writes the answer to one request."""
    path = urllib.parse.urlsplit(request.path).path
    self.requests.append(path)
    self.tokens.append(request.headers.get('Authorization'))
    status, code, body = 200, '', b''
    found = re.fullmatch(rf'(?:/api/models)?/{NAME}/(\w+)/(\w+)/?(.*)', path)
    kind, revision, name = found.groups() if found else ('', '', '')
    if not found:
      status, code = 404, 'RepoNotFound'
    elif revision not in COMMITS:
      status, code = 404, 'RevisionNotFound'
    elif kind == 'resolve':
      body = (self._directory / name).read_bytes()
    else:
      model = dict(id=NAME, sha=COMMITS[revision])
      body = json.dumps(self._tree() if kind == 'tree' else model).encode()
    status, code = self.faults.get(name, (status, code))
    request.send_response(status)
    request.send_header('X-Error-Code', code)
    request.send_header('X-Repo-Commit', COMMITS.get(revision) or '')
    request.send_header('ETag', f'"{hashlib.sha1(body).hexdigest()}"')
    request.send_header('Content-Length', str(len(body)))
    request.end_headers()
    if request.command == 'GET':
      request.wfile.write(body)

  def _tree(self):
    """Returns the descriptions of the files."""
    return [
        dict(type='file', path=x.name, size=x.stat().st_size, oid='0' * 40)
        for x in sorted(self._directory.iterdir())
    ]


@pytest.fixture(scope='module')
def released(tmp_path_factory):
  """An exported tiny model."""
  home = tmp_path_factory.mktemp('hub')
  tiny_run.make(home / 'run')
  run = find.find_run(home / 'run')
  convert_weights.export_run(*run, home / 'out', 'float32')
  converting.shard(home / 'out')
  return home / 'out'


@pytest.fixture
def close_sockets(monkeypatch):
  """Allows no connection in this test."""

  def refuse(*_, **__):
    raise OSError('sockets are closed')

  monkeypatch.setattr(socket.socket, 'connect', refuse)
  monkeypatch.setattr(socket, 'getaddrinfo', refuse)


@pytest.fixture
def offline(close_sockets, tmp_path, monkeypatch, run_command):
  """offline(name, ...) -> the error lines of commands on a model."""
  del close_sockets
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'text.txt').write_text('A text.')

  def offline(name, *more):
    for command, flags in (
        (convert, [f'--source={name}', '--target=run']),
        (summarize, [f'--checkpoint={name}', 'text.txt']),
    ):
      status, out, err = run_command(command, *flags, *more)
      assert (status, out, err.count('\n')) == (2, '', 1), err
      yield err
    assert [path.name for path in tmp_path.iterdir()] == ['text.txt']

  return offline


@pytest.mark.parametrize(
    'name', ('org/name@main', 'runs/quickstrat', './org/name', 't5-small', '')
)
def test_a_mistyped_path_makes_no_connection(offline, name):
  """The message explains both ways to name a model on the Hub."""
  for err in offline(name):
    assert not name or err == (
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


@pytest.fixture
def server(released):
  server = Hub(released)
  yield server
  server.close()


@pytest.fixture
def find_model(server, tmp_path):
  """find_model(name, ...) -> (status, stdout, stderr) of hub.find_directory.

  Runs in a separate process with huggingface_hub's client.
  """

  def find_model(*arguments, setup='', **environment):
    program = (
        'import sys\n'
        'from locost_jax.config import commands\n'
        'from locost_jax.hugging_face import hub\n'
        f'{setup}\n'
        'with commands.one_line_errors():\n'
        '  print(hub.find_directory(*sys.argv[1:]))'
    )
    paths = dict(
        HF_ENDPOINT=server.url,
        HF_HOME=str(tmp_path / 'hf'),
        HF_HUB_DISABLE_PROGRESS_BARS='1',
    )
    done = subprocess.run(
        [sys.executable, '-c', program, *arguments],
        env={**os.environ, 'PYTHONPATH': str(ROOT), **paths, **environment},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert 'Traceback' not in done.stderr, done.stderr
    return done.returncode, done.stdout.strip(), done.stderr.strip()

  return find_model


@pytest.mark.parametrize(
    'weights, more',
    (
        (
            'model.safetensors',
            'pytorch_model.bin tf_model.h5 flax_model.msgpack',
        ),
        (
            'model-00001-of-00002.safetensors model-00002-of-00002.safetensors '
            'model.safetensors.index.json',
            'pytorch_model.bin',
        ),
        ('pytorch_model.bin', 'rust_model.ot training_args.bin'),
    ),
)
def test_which_files_of_a_repository_are_chosen(
    server, find_model, tmp_path, weights, more
):
  """Pickles only where there are no safetensors; no other copies, no code."""
  server._directory = tmp_path / 'model'
  server._directory.mkdir()
  needed = f'config.json generation_config.json spiece.model {weights}'.split()
  for name in (*needed, *more.split(), 'README.md', 'modeling_x.py'):
    (server._directory / name).write_text(name)
  status, directory, err = find_model(f'hf://{NAME}')
  assert (status, err) == (0, f'{NAME}@{"a" * 40}')
  found = {path.name: path.read_text() for path in Path(directory).iterdir()}
  assert found == {name: name for name in needed}


def test_downloads_what_is_needed_and_keeps_it(
    server, find_model, released, tmp_path
):
  """Uses real sockets; a second call downloads nothing."""
  for name, commit in ((f'{NAME}@v1', 'b' * 40), (NAME, 'a' * 40)):
    status, directory, err = find_model(f'hf://{name}')
    assert (status, err) == (0, f'{NAME}@{commit}')
    count = sum('/resolve/' in path for path in server.requests)
    assert find_model(name, 'allow') == (status, directory, err)
    assert count == sum('/resolve/' in path for path in server.requests)
    assert Path(directory).name == commit
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
  for name, commit, offline in (
      (f'{NAME}@v1', 'b' * 40, '0'),
      (NAME, 'a' * 40, '1'),
      (f'{NAME}@{"a" * 40}', 'a' * 40, '0'),
  ):
    status, kept, err = find_model(f'hf://{name}', HF_HUB_OFFLINE=offline)
    assert (status, err) == (0, f'{NAME}@{commit}')
    assert Path(kept).name == commit


def test_a_page_or_a_file_is_no_model():
  for name, line in (
      ('https://huggingface.co/org/tiny', 'is a page; expected hf://org/tiny'),
      (__file__, 'is a file; expected a directory'),
  ):
    with pytest.raises(InputError, match=f'^{re.escape(name)}: {line}$'):
      hub.find_directory(name)


GATED, LOGIN, BROKEN = (403, 'GatedRepo'), (401, ''), (500, '')


@pytest.mark.parametrize(
    'name, place, fault, message',
    (
        (
            'org/other',
            None,
            None,
            'the Hub has no model of this name, or it is',
        ),
        (f'{NAME}@v9', None, None, 'the model has no branch, tag or commit'),
        (NAME, '', GATED, 'accept its terms at https://huggingface.co/org/tin'),
        (NAME, 'config.json', GATED, 'access to this model is restricted'),
        (NAME, 'config.json', LOGIN, 'the Hub refused the login (401)'),
        (NAME, '', BROKEN, 'the Hub answered 500: try'),
    ),
)
def test_each_error_has_its_own_message(
    server, find_model, name, place, fault, message
):
  server.faults[place] = fault
  status, out, err = find_model(f'hf://{name}')
  assert (status, out, err.count('\n')) == (2, '', 0), err
  assert err.startswith(f'error: hf://{name}: ') and message in err


@pytest.mark.parametrize('commit', ('../../EVIL', 'A' * 40, None))
def test_a_commit_is_no_path(find_model, tmp_path, monkeypatch, commit):
  monkeypatch.setitem(COMMITS, 'main', commit)
  status, _, err = find_model(f'hf://{NAME}')
  assert status == 2 and err.endswith('; expected 40 hex digits')
  assert not list(tmp_path.rglob('*EVIL*'))


@pytest.mark.parametrize(
    'setup, words',
    (
        (  # known beforehand
            'import shutil\n'
            'shutil.disk_usage = lambda path: shutil._ntuple_diskusage(9, 9, 7)',
            'Not enough free disk space to download the file',
        ),
        (
            'import resource\n'
            'resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))',
            'File too large',
        ),
    ),
)
def test_no_room_on_the_disk(find_model, setup, words):
  status, _, err = find_model(f'hf://{NAME}', setup=setup)
  assert (status, err.count('\n')) == (2, 0), err
  assert words in err and ': free some space in ' in err
  assert err.endswith(', or set HF_HOME to a directory on another disk')


def test_a_token_is_in_no_message(server, find_model):
  """Neither one that the HTTP client refuses nor one that the Hub returns."""
  for token in 'hf_se\x01cret', 'hf_secret':
    server.faults[''] = 401, 'hf_secret'
    status, _, err = find_model(f'hf://{NAME}', HF_TOKEN=token)
    assert status == 2 and 'cret' not in err, err
  assert 'Bearer hf_secret' in server.tokens


def test_a_name_without_a_network_is_one_line(offline):
  for words in ['hf://org/name'], ['org/name', '--allow_download']:
    for err in offline(*words):
      assert (
          'https://huggingface.co/org/name by hand into DIR and pass DIR '
          '(sockets are closed)'
      ) in err
  with pytest.raises(InputError, match='no answer from https://huggingface.co'):
    locost_jax.load('org/name@main', allow_download=True)


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
