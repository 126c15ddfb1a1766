"""Objects of buckets are copied whole, or one line says why not."""

import json
import mmap
import os
from pathlib import Path

import pytest

from locost_jax.config import object_store
from locost_jax.errors import InputError
from locost_jax.summarizing import document_files
from tests import python
from tests.bucket_server import Fault
from tests.bucket_server import TOKEN

HOME = 'gs://locost-test'
DENIED = 'access is denied (403)'
NO_LOGIN = 'no login, or an expired one (401): run `gcloud auth'


def data_reads(bucket):
  """Returns (object, Range header) of all reads of contents."""
  return [row[1:] for row in bucket.requests if row[0] == 'GET' and row[1]]


@pytest.fixture
def small_pieces(monkeypatch):
  monkeypatch.setattr(object_store, 'PIECE', 4)


@pytest.mark.parametrize('size', [0, 1, 4, 5, 8, 11])
def test_an_object_is_copied_piece_by_piece(bucket, small_pieces, size):
  data = bytes(range(size))
  bucket.put('a/b.bin', data)
  path = object_store.local(f'{HOME}/a/b.bin')
  assert Path(path).read_bytes() == data
  assert os.path.basename(path) == 'b.bin'
  generation = bucket.objects['a/b.bin'][1]
  assert object_store.origin(path) == (f'{HOME}/a/b.bin', generation)
  assert object_store.original(f'{path}:1: x') == f'{HOME}/a/b.bin:1: x'
  assert len(os.listdir(Path(path).parent)) == 1


def test_a_copy_is_read_again_without_the_bucket(bucket, capfd):
  bucket.put('a', 'text')
  path = object_store.local(f'{HOME}/a')
  reads = len(bucket.requests)
  assert object_store.local(f'{HOME}/a') == path
  assert len(bucket.requests) == reads
  object_store.forget(f'{HOME}/a')  # as in another process
  bucket.requests.clear()
  assert object_store.local(f'{HOME}/a') == path
  assert not any(where for _, _, where in bucket.requests)
  assert capfd.readouterr().err.count('copies 1 of 1 objects') == 1


def test_a_directory(bucket):
  for name in 'run/a', 'run/b/c', 'run2/a', 'run/b/', 'other':
    bucket.put(name, name)
  path = Path(object_store.local(f'{HOME}/run/'))
  found = {x.relative_to(path).as_posix(): x for x in path.rglob('*')}
  assert sorted(found) == ['a', 'b', 'b/c']
  assert found['b/c'].read_text() == 'run/b/c' and not found['a'].is_symlink()
  only = Path(object_store.local(f'{HOME}/run', ('b/*',)))
  assert sorted(x.name for x in only.rglob('*')) == ['b', 'c']
  object_store.forget(f'{HOME}/run')
  bucket.put('run/a', 'new')
  assert (path / 'a').read_text() == 'run/a'
  assert Path(object_store.local(f'{HOME}/run'), 'a').read_text() == 'new'


@pytest.mark.parametrize(
    'pattern, names',
    [
        ('d/*.txt', 'd/b.txt d/c.txt'),
        ('d/[c-z].txt', 'd/c.txt'),
        ('d/**/*.txt', 'd/b.txt d/c.txt d/e/f.txt'),
        ('*/e/*', 'd/e/f.txt'),
        ('d/b.txt', 'd/b.txt'),
        ('d/.*', 'd/.h.txt'),
    ],
)
def test_patterns(bucket, pattern, names):
  # The newest of them is not the last by name.
  for name in 'd/c.txt d/e/f.txt d/b.txt d/.h.txt d/z a.txt'.split():
    bucket.put(name, name)
  found = object_store.copy_matches(f'{HOME}/{pattern}')
  assert list(found) == [f'{HOME}/{name}' for name in names.split()]
  for uri, path in found.items():
    assert Path(path).read_text() == uri.removeprefix(f'{HOME}/')


def test_a_list_of_many_objects(bucket):
  for i in range(1203):
    bucket.objects[f'd/{i:04}'] = b'', i + 1
  assert len(object_store.find(f'{HOME}/d')) == 1203
  # TensorStore takes a refused page for the end of the list.
  object_store.forget(f'{HOME}/d')
  bucket.faults = [('GET', '^$', Fault()), ('GET', '^$', Fault(403))]
  assert len(object_store.find(f'{HOME}/d')) == 1203


@pytest.mark.parametrize(
    'name, expected',
    [
        (
            'locost-test/none',
            '/none: no object is there, or there is no bucket',
        ),
        ('locost-test/a/x', 'or there is no bucket locost-test'),
        (
            'wrong-bucket',
            'no object is there, or there is no bucket wrong-buck',
        ),
        ('wrong-bucket/a', 'or there is no bucket wrong-bucket'),
        ('', 'gs://: expected gs://BUCKET/NAME'),
        ('/a', 'gs:///a: expected gs://BUCKET/NAME'),
        ('Locost/a', 'gs://Locost/a: expected gs://BUCKET/NAME'),
        ('locost-test/../a', 'expected gs://BUCKET/NAME'),
        ('locost-test//a', 'expected gs://BUCKET/NAME'),
        ('locost-test/a\0', 'expected gs://BUCKET/NAME'),
        ('locost-test/d', 'expected gs://BUCKET/NAME'),  # of what is in it
    ],
)
def test_nothing_there(bucket, tmp_path, name, expected):
  bucket.put('a', 'text')
  bucket.put('d/../../../x', 'text')
  with pytest.raises(InputError) as error:
    object_store.local(f'gs://{name}')
  assert expected in str(error.value) and '\n' not in str(error.value)
  assert not (tmp_path / 'home').exists()


@pytest.mark.parametrize(
    'fault, expected',
    [
        (Fault(401), NO_LOGIN),
        (Fault(403), DENIED),
        (Fault(404), 'no object is there, or there is no bucket'),
        (Fault(429), 'All 3 retry attempts failed: injected (429): try again'),
        (Fault(503), 'All 3 retry attempts failed: injected (503): try again'),
        (Fault(cut=3), 'end of response with'),
        (Fault(lost=True), 'Server returned nothing'),
    ],
)
@pytest.mark.parametrize('name', ['d', 'd/a'])
def test_a_bucket_that_always_fails(bucket, tmp_path, name, fault, expected):
  bucket.put('d/a', 'a long text')
  bucket.always = fault
  with pytest.raises(InputError) as error:
    object_store.local(f'{HOME}/{name}')
  text = str(error.value)
  assert text.startswith(HOME) and expected in text
  assert '\n' not in text and TOKEN not in text
  assert not [x for x in tmp_path.rglob('*') if x.is_file()]


@pytest.mark.parametrize('status', [401, 403])
def test_a_refusal_in_the_middle(bucket, tmp_path, status):
  for name in 'abc':
    bucket.put(f'd/{name}', name)
  bucket.faults = [('GET', 'd/b', Fault()), ('GET', 'd/b', Fault(status))]
  with pytest.raises(InputError, match=rf'^{HOME}/d/b: .*\({status}\)'):
    object_store.local(f'{HOME}/d')
  assert {x.name for x in tmp_path.rglob('?*') if x.is_file()} <= {'a', 'c'}
  path = object_store.local(f'{HOME}/d')  # what is missing is copied
  assert sorted(os.listdir(path)) == ['a', 'b', 'c']


@pytest.mark.parametrize(
    'fault', [Fault(429), Fault(503), Fault(cut=3), Fault(lost=True)]
)
def test_passing_faults_are_survived(bucket, small_pieces, fault):
  bucket.put('d/a', 'a long text')
  bucket.put('d/b', 'another text')
  rows = [('GET', name, fault) for name in ('^$', 'a$', 'b$')]
  bucket.faults = [*rows, ('GET', '.', Fault(seconds=0.2)), *rows]
  path = object_store.local(f'{HOME}/d')
  assert Path(path, 'a').read_text() == 'a long text'
  assert Path(path, 'b').read_text() == 'another text'
  assert not bucket.faults


@pytest.mark.parametrize('new', ['a new, longer text', 'text', '', None])
@pytest.mark.parametrize('after', [1, 2, 3])
def test_an_object_that_is_replaced_meanwhile(
    bucket, small_pieces, tmp_path, new, after
):
  bucket.put('a', 'a longer text')

  def replace():
    bucket.objects.pop('a') if new is None else bucket.put('a', new)

  bucket.faults = [('GET', '^a$', Fault())] * (after - 1)
  bucket.faults.append(('GET', '^a$', Fault(then=replace)))
  with pytest.raises(InputError, match=f'^{HOME}/a: was replaced or removed'):
    object_store.local(f'{HOME}/a')
  assert not [x for x in tmp_path.rglob('*') if x.is_file()]


def test_processes_of_a_run_read_the_same_generation(bucket):
  bucket.put('d/a', 'old')
  path = object_store.copy_matches(f'{HOME}/d/*')
  known = json.loads(json.dumps(object_store.FOUND))
  bucket.put('d/a', 'new')
  bucket.put('d/b', 'new')
  object_store.forget(f'{HOME}/d')
  object_store.FOUND.update(known)
  assert object_store.copy_matches(f'{HOME}/d/*') == path
  Path(path[f'{HOME}/d/a']).unlink()  # as on another host
  with pytest.raises(InputError, match='a: was replaced or removed while this'):
    object_store.copy_matches(f'{HOME}/d/*')


def test_more_than_the_disk_may_hold(bucket, small_pieces, tmp_path):
  bucket.put('d/a', bytes(2**11))
  mib = 2.0**-10
  line = (
      rf'^{HOME}/d: at least 9.\d+e-07 GiB to copy; .*bucket_disk=9.53674e-07'
  )
  with pytest.raises(InputError, match=line):
    object_store.local(f'{HOME}/d', disk=2.0**-20)
  assert len(data_reads(bucket)) < 300  # it stops early
  assert not [x for x in tmp_path.rglob('*') if x.is_file()]
  assert object_store.local(f'{HOME}/d', disk=mib)
  with pytest.raises(InputError, match='/d: 1.907e-06 GiB to copy'):
    object_store.local(f'{HOME}/d', disk=2.0**-20)  # although it is here


def test_a_manifest_says_how_much_there_is_to_copy(bucket):
  manifest = {'params/a': [f'{3 * 2**30} {"0" * 64}'], 'state/b': ['9e99 x']}
  bucket.put('run/1/manifest.json', json.dumps(manifest))
  bucket.put('run/1/params/a', 'text')
  line = f'^{HOME}/run: 3 GiB to copy; expected at .*bucket_disk=2$'
  with pytest.raises(InputError, match=line):
    object_store.local(f'{HOME}/run', disk=2)
  assert not any(
      where for name, where in data_reads(bucket) if 'params' in name
  )


@pytest.mark.parametrize('text', ['[]', '{"params/a": 1}', 'x', '{"a": [[]]}'])
def test_a_manifest_that_is_none(bucket, text):
  bucket.put('run/manifest.json', text)
  assert os.listdir(object_store.local(f'{HOME}/run')) == ['manifest.json']


@pytest.mark.parametrize(
    'name', ['TENSORSTORE_CURL_VERBOSE', 'TENSORSTORE_VERBOSE_LOGGING']
)
def test_the_login_is_not_printed(bucket, monkeypatch, name):
  bucket.put('a', 'text')
  monkeypatch.setenv(name, '1')
  with pytest.raises(
      InputError, match=f'{name} is set, which prints the login'
  ):
    object_store.local(f'{HOME}/a')
  assert not bucket.requests


def test_a_full_disk(bucket, tmp_path, monkeypatch):
  bucket.put('a', 'text')

  def fsync(_):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(os, 'fsync', fsync)
  with pytest.raises(OSError) as error:
    object_store.local(f'{HOME}/a')
  assert error.value.filename.startswith(str(tmp_path / 'home'))
  assert not [x for x in tmp_path.rglob('*') if x.is_file()]


def test_documents(bucket, tmp_path):
  """Documents of a bucket have their gs:// paths as names."""
  rows = '{"document": "One.", "id": "1"}\n{"document": "Two."}\n{"x": 1}\n'
  contents = {'b.txt': 'A text.', 'a/c.jsonl': rows, 'd.png': 'x', '.e.txt': ''}
  (tmp_path / 'here').mkdir()
  for name, text in contents.items():
    bucket.put(f'docs/{name}', text)
    path = tmp_path / 'here' / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
  read = []
  for where in str(tmp_path / 'here'), f'{HOME}/docs':
    lines = []
    found, left_out = document_files.read_all(
        [where, f'{where}/b.txt'], report=lines.append
    )
    read.append([str(x).replace(where, '') for x in (found, left_out, lines)])
  assert read[0] == read[1]
  assert 'png' in read[1][2] and 'e.txt' not in str(read)
  names = {name for name, where in data_reads(bucket) if where}
  assert names == {'docs/b.txt', 'docs/a/c.jsonl'}  # what can be read
  found, left_out = document_files.read_all(
      [f'{HOME}/none.txt'], report=lambda _: None
  )
  assert not found and left_out[0].reason.startswith('no object is there')


def test_a_directory_that_cannot_be_written(bucket, tmp_path):
  bucket.put('a', 'text')
  (tmp_path / 'home').write_text('a file')
  with pytest.raises(InputError, match='cannot be written: .*XDG_CACHE_HOME'):
    object_store.local(f'{HOME}/a')


def test_a_path_with_spaces_is_found_again(bucket):
  read = lambda: Path(object_store.local(f'{HOME}/my docs/a b.txt')).read_text()
  bucket.put('my docs/a b.txt', 'old')
  assert read() == 'old'
  bucket.put('my docs/a b.txt', 'new')
  object_store.forget(f'{HOME}/my docs')
  assert read() == 'old'
  object_store.forget(f'{HOME}/my docs/a b.txt')
  assert read() == 'new'


def test_objects_are_written_under_a_condition(bucket):
  store = object_store.Bucket('locost-test')
  assert store.read('a') == (None, None)
  first = store.write('a', b'1')
  assert bucket.objects['a'] == (b'1', first)
  with pytest.raises(object_store.Replaced, match=r'locost-test/a: was replac'):
    store.write('a', b'2')
  second = store.write('a', b'', first)
  assert store.read('a') == (b'', second)
  for data in b'3', None:
    with pytest.raises(object_store.Replaced, match=f'now {second}'):
      store.write('a', data, first)
  assert store.write('a', None, second) is None and not bucket.objects
  assert store.write('a', None, second) is None  # it is gone


@pytest.mark.parametrize(
    'fault', [dict(lost=True), dict(cut=3), dict(status=503), dict(status=429)]
)
def test_a_write_whose_answer_is_lost_succeeds(bucket, fault):
  store = object_store.Bucket('locost-test')
  known = None
  for data in b'1', b'2':
    bucket.faults = [('POST', 'a', Fault(**fault))]
    known = store.write('a', data, known)
    assert bucket.objects['a'] == (data, known) and not bucket.faults
  bucket.faults = [('DELETE', 'a', Fault(**fault))]
  store.write('a', None, known)
  assert not bucket.objects


def test_steps_without_a_manifest_are_not_found(bucket):
  for name in 'params/a', 'metrics/metrics', 'manifest.json':
    bucket.put(f'run/checkpoints/1/{name}', name)
  bucket.put('run/p/checkpoints/2/params/a', 'torn')
  bucket.put('run/config.json', '{}')
  found = object_store.find(f'{HOME}/run', ('**/params/**', 'config.json'))
  assert list(found) == ['run/checkpoints/1/params/a', 'run/config.json']
  assert len(object_store.find(f'{HOME}/run')) == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    'call, least, most',
    [
        (f"object_store.local('{HOME}/a')", 0, 200),
        ("object_store.Bucket('locost-test').read('a')", 1000, 4000),  # control
    ],
)
def test_a_copy_of_1_gib_is_not_held_in_memory(bucket, call, least, most):
  # Zeros that take no memory here either, until they are written.
  bucket.objects['a'] = mmap.mmap(-1, 2**30, mmap.MAP_PRIVATE), 1
  program = f"""
from locost_jax.config import object_store
from locost_jax.devices import memory
object_store.Bucket('locost-test').generation('a')
before = memory.peak_host_bytes()
{call}
print(memory.peak_host_bytes() - before)"""
  grown = int(python.run('-c', program).stdout)
  assert least <= grown >> 20 < most
