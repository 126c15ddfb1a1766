"""Files in a bucket (gs://BUCKET/NAME): copied to this machine, and written.

TensorStore, which Orbax requires, asks the bucket and finds the login. Traps:

- `list` returns [] without access or bucket, and ends at a page that is
  refused. So finding nothing is an error here, and a list is always continued.
- No answer has an object's size: pieces are read until one is out of range.
- A write under a condition that does not hold, and one that succeeded although
  its answer was lost, look alike: what is there then is read and compared.

Copies lie in gs/BUCKET/KEY/NAME in `speed.cache_directory()`. KEY is the
generation of an object or, for a directory, a hash of all of them, so the copy
of an object that was replaced is not read. What a run has found stays the same
until its end, also in the processes that it starts (`FOUND`).
"""

from concurrent import futures
import contextlib
import fnmatch
import functools
import glob
import hashlib
import itertools
import json
import os
import pathlib
import re
import shutil
import sys
import uuid

from locost_jax import files
from locost_jax.config import speed
from locost_jax.errors import FULL
from locost_jax.errors import InputError
from locost_jax.errors import Unavailable
from locost_jax.errors import visible

PREFIX = 'gs://'
ALL = ('**',)  # patterns of everything below a directory
GIB = 2**30
DISK = 20.0  # GiB, the default of config.data.bucket_disk
PIECE = 1 << 25  # bytes read at once, by each thread
RETRIES = dict(max_retries=6, initial_delay='1s', max_delay='16s')  # 47 s
_THREADS = 8
_MANIFEST = 'manifest.json'
# TensorStore prints its requests, with the login, if one of these is set.
_PRINTING = 'TENSORSTORE_CURL_VERBOSE', 'TENSORSTORE_VERBOSE_LOGGING'
_REASONS = {
    '401': 'no login, or an expired one (401): run `gcloud auth '
    'application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS',
    '403': 'access is denied (403): expected a login that may list and read it',
}
_WRITE_REASONS = {
    '403': 'access is denied (403): expected a login that may list, read, '
    'create, replace and delete objects there',
    '404': 'there is no such bucket (404)',
}
_ABSENT = b'\2'  # TensorStore's generation of an object that does not exist
_STEP = re.compile(r'((?:.*/)?checkpoints/\d+)/.*')
FOUND = {}  # what `find` was asked for -> {name: generation}


class Replaced(InputError):
  """An object has not the generation that a write expected."""


def is_uri(path):
  """Whether a path is in a bucket."""
  return isinstance(path, str) and path.startswith(PREFIX)


@functools.cache
class Bucket:
  """A bucket of objects; errors are InputErrors that begin with gs://."""

  def __init__(self, name):
    import tensorstore as ts  # Orbax requires it; importing it takes long

    for variable in filter(os.environ.get, _PRINTING):
      raise InputError(f'{variable} is set, which prints the login: unset it')
    self._uri, self._range = f'{PREFIX}{name}/', ts.KvStore.KeyRange
    context = ts.Context({'gcs_request_retries': RETRIES})
    with _explaining(self._uri):
      spec = {'driver': 'gcs', 'bucket': name}
      self._store = ts.KvStore.open(spec, context=context).result()

  def list(self, prefix):
    """Returns the names that begin with a prefix, in order; [] proves nothing."""
    names, first, last = [], prefix.encode(), prefix.encode() + b'\xff'
    with _explaining(self._uri + prefix):
      while more := self._store.list(self._range(first, last)).result():
        names += more
        first = max(more) + b'\0'
      return sorted(name.decode() for name in names)

  def generation(self, name):
    """Returns the generation of an object; None: it does not exist."""
    return self._read(name, slice(0, 0))[1]

  def read(self, name):
    """Returns (bytes, generation) of a whole object; both None: it is missing."""
    data, generation = self._read(name, slice(0, None)) or (b'', 0)
    if not generation:  # the range of an empty object
      generation = self.generation(name)
    return None if generation is None else data, generation

  def write(self, name, data, generation=None):
    """Writes an object whole; data None removes it.

    Until it is written, TensorStore holds two more copies of the data.

    Args:
      generation: of the object that is replaced; None: it must not exist.

    Returns:
      The new generation; None after a removal.

    Raises:
      Replaced: another generation is there, with other contents.
    """
    expected = _ABSENT
    if generation is not None:
      expected = b'\0' + generation.to_bytes(8, 'little')
    with _explaining(self._uri + name, reasons=_WRITE_REASONS):
      stamp = self._store.write(name, data, if_equal=expected).result()
    if stamp.generation:
      number = int.from_bytes(stamp.generation[1:], 'little')
      return None if data is None else number
    there, found = self.read(name)
    if there != data:
      raise Replaced(
          f'{self._uri}{name}: was replaced or removed by another process '
          f'(generation {generation}, now {found})'
      )
    return found

  def pieces(self, name, generation):
    """Yields the bytes of an object in pieces, if it has this generation."""
    start, is_last = 0, False
    while not is_last:
      found = self._read(name, slice(start, start + PIECE))
      if is_last := found is None:  # the object ends in this piece, or before
        found = self._read(name, slice(start, None))
        found = found or (b'', self.generation(name))
      if found[1] != generation:
        raise InputError(
            f'{self._uri}{name}: was replaced or removed while this run read it '
            f'(generation {generation}, now {found[1]}): start it again'
        )
      yield found[0]
      start += PIECE

  def _read(self, name, part):
    """Returns (bytes, generation); None: the part ends behind the object."""
    with _explaining(self._uri + name, 'OUT_OF_RANGE'):
      found = self._store.read(name, byte_range=part).result()
      if found.state == 'missing':
        return b'', None
      # A tag, and the number in little-endian bytes.
      return found.value, int.from_bytes(found.stamp.generation[1:], 'little')
    return None


@contextlib.contextmanager
def _explaining(uri, ignored=None, reasons=()):
  """A context that makes exceptions InputErrors, and drops one status."""
  try:
    yield
  except InputError:
    raise
  except (ValueError, KeyError, RuntimeError) as error:
    text = str(error)  # STATUS: reason [key='value'] ...
    if ignored and text.startswith(ignored):
      return
    status = re.search(r"http_response_code='(\d+)'", text)
    reason = (_REASONS | dict(reasons)).get(status and status[1])
    if reason is None:
      code = f' ({status[1]})' if status else ''
      reason = f'{text.split(" [")[0][:200]}{code}: try again later'
    is_busy = text.startswith('ABORTED: All')  # ... retry attempts failed
    kind = Unavailable if is_busy else InputError
    raise kind(f'{uri}: {visible(reason)}') from None


def parse(uri):
  """Splits gs://BUCKET/NAME into both; an InputError if it cannot be one."""
  bucket, _, name = uri.removeprefix(PREFIX).partition('/')
  name = name.removesuffix('/')
  is_bucket = re.fullmatch(r'[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]', bucket)
  # The name becomes a path on this machine.
  if not is_bucket or name and not all(map(files.is_name, name.split('/'))):
    raise InputError(f'{visible(uri)}: expected {PREFIX}BUCKET/NAME')
  return bucket, name


def find(uri, patterns=ALL):
  """Returns {name in the bucket: generation}; the same for the whole run.

  It is one object, or all below a directory that fit patterns; at least one.
  """
  key = '\n'.join([uri, *patterns])
  if key not in FOUND:
    bucket, name = parse(uri)
    store, front = Bucket(bucket), f'{name}/' if name else ''
    names = store.list(name)
    if name in names:
      names = [name]
    else:  # a name that ends in '/' is a folder made by the console
      names = [x for x in names if x.startswith(front) and x[-1] != '/']
      fits = lambda x: any(_fits(x.split('/'), p.split('/')) for p in patterns)
      whole = _whole(names, patterns)
      names = [x for x in whole if fits(x[len(front) :])]
    for found in names:
      parse(f'{PREFIX}{bucket}/{found}')
    # Asked also where nothing was found: only this shows a refusal.
    generations = in_threads(store.generation, names or [name or '-'])
    if None in generations:
      like = f' like {" or ".join(patterns)}' * (patterns not in (ALL, ()))
      raise InputError(
          f'{uri}: no object{like} is there, or there is no bucket {bucket}'
      )
    FOUND[key] = dict(zip(names, generations))
  return FOUND[key]


def _whole(names, patterns):
  """Leaves out steps without a manifest, unless all or one are asked for.

  In a bucket, a step is written before its manifest and removed after it.
  """
  if patterns == ALL or any(
      re.search(r'checkpoints/\d+/', pattern) for pattern in patterns
  ):
    return names
  whole = {step_of(x) for x in names if x.endswith(f'/{_MANIFEST}')} | {''}
  return [x for x in names if step_of(x) in whole]


def step_of(name):
  """Returns [PHASE/]checkpoints/STEP of the name of a file in it, or ''."""
  match = _STEP.fullmatch(name)
  return match[1] if match else ''


def _fits(parts, pattern):
  """Whether a name fits a pattern, both split at '/'; '**': any directories."""
  if not pattern or not parts:
    return parts == pattern or pattern == ['**']
  if pattern[0] == '**':
    return _fits(parts, pattern[1:] or ['*']) or _fits(parts[1:], pattern)
  is_same = fnmatch.fnmatchcase(parts[0], pattern[0])
  return is_same and _fits(parts[1:], pattern[1:])


def forget(uri):
  """Lets `find` look at a path again: another run in this process begins."""
  for key in list(FOUND):
    if f'{uri}/'.startswith(key.partition('\n')[0].rstrip('/') + '/'):
      del FOUND[key]


def local(path, patterns=ALL, disk=DISK, say=True):
  """Returns a path, or a copy of what is there in a bucket.

  Args:
    patterns: of the names to copy from a directory, see `_fits`.
    disk: the most GiB of the copy.
    say: whether to print a line.

  Raises:
    InputError: it cannot be copied, is too large, or is being replaced.
  """
  if not is_uri(path):
    return path
  found, (bucket, name) = find(path, patterns), parse(path)
  text = json.dumps(sorted(found.items()))
  tree = f'tree-{hashlib.sha256(text.encode()).hexdigest()[:16]}'
  home = os.path.join(_home(), bucket, str(found.get(name, tree)))
  _copy(path, found, {x: os.path.join(home, x) for x in found}, disk, say)
  return os.path.join(home, name)


def copy_matches(pattern, disk=DISK):
  """Returns {gs:// path: its copy} of the objects that a pattern names."""
  parts = pattern.split('/')
  literal = list(itertools.takewhile(lambda x: not glob.has_magic(x), parts))
  root, rest = '/'.join(literal), '/'.join(parts[len(literal) :])
  found, (bucket, _) = find(root, (rest,) * bool(rest)), parse(root)
  if parts[-1][0] != '.':  # as on a disk
    found = {x: found[x] for x in found if x.rpartition('/')[2][0] != '.'}
  home = os.path.join(_home(), bucket)
  paths = {name: f'{home}/{key}/{name}' for name, key in found.items()}
  _copy(pattern, found, paths, disk)
  return {f'{PREFIX}{bucket}/{x}': path for x, path in paths.items()}


def copy_cache(data, name, inner='**'):
  """Copies NAME/INNER of data.cache_dir, where caches must be; returns NAME."""
  patterns = '*/key.json', f'{name}/{inner}'
  home = local(data.cache_dir, patterns, data.bucket_disk)
  return pathlib.Path(home) / name


def remove_copy(path):
  """Removes the copy of a directory that `local` has returned."""
  bucket, key, _ = os.fspath(path).removeprefix(_home()).split('/', 2)
  shutil.rmtree(os.path.join(_home(), bucket, key))


def origin(path):
  """Returns (gs:// path, generation) of the copy of an object, or None."""
  if not path.startswith(_home()):
    return None
  bucket, generation, name = path.removeprefix(_home()).split('/', 2)
  return f'{PREFIX}{bucket}/{name}', int(generation)


def original(text):
  """Returns a text with the gs:// paths of the copies that it names."""
  copy = rf'{re.escape(_home())}([^/]+)/(\d+|(tree|run)-[0-9a-f]+)/'
  return re.sub(copy, rf'{PREFIX}\1/', text)


def _home():
  return os.path.join(speed.cache_directory(), 'gs', '')


def _copy(uri, found, paths, disk, say=True):
  """Copies the objects that are not there yet: {name: path}."""
  missing = {name for name in found if not os.path.exists(paths[name])}
  store, sizes = Bucket(parse(uri)[0]), []
  if missing and say:
    what = f'{uri}: copies {len(missing):,} of {len(found):,} objects'
    print(what, file=sys.stderr, flush=True)

  def check(size, what=''):
    if size > disk * GIB:
      raise InputError(
          f'{uri}: {what}{size / GIB:,.4g} GiB to copy; expected at most '
          f'config.data.bucket_disk={disk:g}'
      )

  def add(size):
    sizes.append(size)
    check(sum(sizes), 'at least ')

  copy = lambda x: _write(paths[x], store.pieces(x, found[x]), add)
  # A manifest says how large its directory is before that is copied.
  manifests = {x for x in missing if x.endswith(_MANIFEST)}
  for name in manifests:
    copy(name)
  sizes += [os.path.getsize(paths[name]) for name in found.keys() - missing]
  check(max(sum(sizes), _announced(paths)))
  in_threads(copy, missing - manifests)


def in_threads(function, items):
  """Calls a function for each item, some at once; returns the results."""
  with futures.ThreadPoolExecutor(_THREADS) as pool:
    return list(pool.map(function, items))


def download(bucket, found, paths):
  """Copies objects: {name: generation} to {name: path}, of a `Bucket`."""
  write = lambda x: _write(paths[x], bucket.pieces(x, found[x]), lambda _: None)
  in_threads(write, found)


def scratch(bucket, name, number):
  """Returns the directory of a run in a bucket, which `original` knows."""
  return os.path.join(_home(), bucket, f'run-{number}', name)


def _announced(paths):
  """Returns the bytes that manifests name; paths is {name: path of the copy}."""
  total = 0
  for name in (x for x in paths if x.endswith(_MANIFEST)):
    folder = name.removesuffix(_MANIFEST)
    # Its reader says what is wrong with it.
    with contextlib.suppress(InputError, ValueError, TypeError, LookupError):
      for inner, entry in files.read_object(paths[name], 1 << 26).items():
        if folder + inner in paths:
          total += int(str(entry[0]).split()[0])
  return total


def _write(path, pieces, add):
  """Writes a file whole or not at all; calls add(bytes) before each piece."""
  partial = f'{path}.{uuid.uuid4().hex}'
  try:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(partial, 'wb') as file:
      for data in pieces:
        add(len(data))
        file.write(data)
      file.flush()
      os.fsync(file.fileno())
    os.replace(partial, path)
  except OSError as error:
    if error.errno in FULL:
      error.filename = path
      raise
    raise InputError(
        f'{path}: cannot be written: {error.strerror}; XDG_CACHE_HOME may name '
        'another directory for copies'
    ) from None
  finally:
    with contextlib.suppress(OSError):
      os.remove(partial)
