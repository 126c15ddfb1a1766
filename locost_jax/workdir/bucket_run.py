"""A run whose WORKDIR is in a bucket: gs://BUCKET/NAME.

Each host works in a directory of its own, as any run on a disk; the bucket has
the truth. At its start the directory is made equal to the bucket. Only the first
host writes there: it has the lease, and gathers the arrays that are saved.
Objects have the names of the files:

  ~run.lock             the lease; its name is the last of a list, so a list
                        that has it is whole
  checkpoints/STEP/...  a step; exists only with its manifest
  config.json ...       all other files, except for caches

After each step is saved on disk, the files that changed are copied to the
bucket, then the step's, and last its manifest.json, which is created only if it
does not exist: the commit. A step is removed in the opposite order. Before both,
the lease is renewed, so a process that has lost it commits and removes nothing.
Readers (`object_store.find`) leave out steps without a manifest.
"""

import contextlib
import json
import os
from pathlib import Path
import re
import shutil
import threading
import uuid

import jax

from locost_jax import files
from locost_jax.config import object_store
from locost_jax.devices import collective
from locost_jax.errors import InputError
from locost_jax.errors import Stopped
from locost_jax.workdir import checkpoint
from locost_jax.workdir import lease as lease_lib
from locost_jax.workdir import manifest
from locost_jax.workdir import phases as phases_lib

LEASE = '~run.lock'
_MINE = 'cache', 'evaluations', 'wandb'  # directories that stay on this machine
_SMALL = object_store.PIECE  # bytes of files that are read several at once
_mirrors = {}  # directory -> its Mirror


@contextlib.contextmanager
def open_workdir(workdir, use='train'):
  """A context of the pathlib.Path of a WORKDIR on disk.

  Args:
    workdir: a path, or gs://BUCKET/NAME.
    use: 'train': one process at a time, all files are copied to the bucket;
      'evaluate': only predictions are; 'preflight': an object is written and
      removed; others: nothing is.

  Raises:
    InputError: the bucket cannot be used; another process trains there.
  """
  if not object_store.is_uri(str(workdir)):
    yield Path(workdir)
    return
  with contextlib.ExitStack() as stack:
    with collective.raising_together():
      home, mirror, lease = _open(workdir.rstrip('/'), use, stack)
    mirror.pull()
    if use == 'train':
      _mirrors[home] = mirror
    try:
      yield home
    except BaseException:
      if lease:  # the error that ends the run says more than this one's
        with contextlib.suppress(InputError, Stopped, OSError):
          mirror.push()
      raise
    with collective.raising_together():
      if use in ('train', 'evaluate') and collective.is_first_host():
        mirror.push('' if lease else 'predictions')


def _open(uri, use, stack):
  """Returns (directory of this host, its Mirror, the first host's lease)."""
  name, front = object_store.parse(uri)
  if not front:
    raise InputError(f'--workdir={uri}: expected gs://BUCKET/NAME')
  bucket = object_store.Bucket(name)
  if use == 'preflight':
    probe = f'{front}/.preflight-{uuid.uuid4().hex}'
    bucket.write(probe, None, bucket.write(probe, b''))
  home, lock = _lock_scratch(name, front)
  stack.enter_context(lock)
  lease = None
  if use == 'train' and collective.is_first_host():
    lease = lease_lib.Lease(uri, bucket, f'{front}/{LEASE}')
  mirror = Mirror(uri, bucket, f'{front}/', home, lease)
  stack.callback(mirror.close)
  return home, mirror, lease


def mirror_of(directory):
  """Returns the Mirror of a run that a directory is in, or one that is idle."""
  parents = Path(directory, '-').parents
  return next(filter(None, map(_mirrors.get, parents)), OnDisk())


class OnDisk:
  """The Mirror of a run on a disk: nothing is copied.

  Attributes:
    is_shared: whether all hosts see the directory.
  """

  is_shared = True

  def check(self, *_):
    """Does nothing, like the other methods; see `Mirror`."""

  commit = remove = share = check


def _lock_scratch(bucket, name):
  """Returns (a directory that no other process uses, its open lock).

  It is the same for each start on a machine, so its caches are used again.
  """
  for number in range(1000):
    home = object_store.scratch(bucket, name, number)
    with contextlib.suppress(BlockingIOError):
      return Path(home), files.open_locked(f'{home}.lock', parents=True)
  raise InputError(f'{home}: 1000 processes work here')


class Mirror:
  """Copies a run between a bucket and a directory; see `OnDisk`."""

  def __init__(self, uri, bucket, front, home, lease):
    """Copies nothing yet.

    Args:
      bucket: an `object_store.Bucket`.
      front: the beginning of the names of all objects.
      home: pathlib.Path of the directory.
      lease: a `lease.Lease`; None: this process writes no steps.
    """
    self.is_shared = jax.process_count() == 1
    self._uri, self._bucket, self._front = uri, bucket, front
    self._home, self._lease = home, lease
    self._lock = threading.RLock()
    self._generations = {}  # name without front -> of the object
    self._copied = {}  # name -> stat of the file that equals the object
    self._manifests = {}  # step -> bytes in the bucket

  def pull(self):
    """Makes the directory equal to the bucket; removes torn steps there."""
    with collective.raising_together():
      if collective.is_first_host():
        self._list()
      self._clear()
    found, self._generations = self._generations, {}
    for step in self._fetch(found):
      path = self._home / step / manifest.FILE
      self._manifests[step] = path.read_bytes()

  def share(self, restored=None):
    """Gives the other hosts what is in the bucket; all hosts call this.

    Args:
      restored: directory of a step that they will restore; of others they get
        no optimiser.

    Raises:
      InputError: a copy is damaged.
    """
    steps = self._fetch(self._generations, restored)
    with collective.raising_together():
      for path in (self._home / step for step in steps if not self._lease):
        only = '' if path == restored else 'params/'
        if damage := manifest.find_damage(path, only):
          raise InputError(
              f'{path}: {damage} on host {jax.process_index()}, not on the '
              'first: start the run again'
          )

  def _list(self):
    """Finds the generations; removes steps that are not whole."""
    names = self._bucket.list(self._front)
    names = [x.removeprefix(self._front) for x in names if x[-1] != '/']
    if self._lease and LEASE not in names:
      raise InputError(
          f'{self._uri}: cannot be listed: expected a login that may list it'
      )
    has_run = phases_lib.CONFIG_FILE in names
    is_ours = self._lease.generation if self._lease else LEASE in names
    if has_run and not is_ours:
      raise InputError(
          f'{self._uri}: this run was begun on a disk and copied, or its {LEASE} '
          'was removed: use another --workdir, with '
          f'--config.train.init_from={self._uri}'
      )
    names = [name for name in names if name != LEASE]
    for name in names:  # each becomes a path on this machine
      object_store.parse(f'{self._uri}/{name}')
    found = object_store.in_threads(self._generation, names)
    self._generations = {k: v for k, v in zip(names, found) if v is not None}
    steps = {object_store.step_of(name) for name in self._generations} - {''}
    whole = {x for x in steps if f'{x}/{manifest.FILE}' in self._generations}
    if self._lease and steps - whole:
      collective.log(
          f'{self._uri}: removes {", ".join(sorted(steps - whole))}: not whole '
          '(the run was stopped while it was saved or removed)'
      )
      for step in steps - whole:
        self.remove(self._home / step)
    for name in list(self._generations):
      if object_store.step_of(name) not in whole | {''}:
        del self._generations[name]

  def _fetch(self, found, restored=None):
    """Copies what the first host has found and this one lacks; returns steps."""
    (found,) = collective.gather_rows([found] * collective.is_first_host())
    found = {
        name: found[name]
        for name in found
        # Only who continues needs the optimiser.
        if self._lease
        or '/training/' not in name
        or self._home / object_store.step_of(name) == restored
    }
    here, self._generations = self._generations, found
    steps = {object_store.step_of(name) for name in found} - {''}
    has_run = phases_lib.CONFIG_FILE in found  # its first copy is whole
    with collective.raising_together():
      for step in {object_store.step_of(name) for name in here} - steps - {''}:
        shutil.rmtree(self._home / step)
      if has_run:
        self._download(x for x in found if here.get(x) != found[x])
    return steps if has_run else set()

  def check(self):
    """Raises Stopped if another process has taken the lease."""
    if self._lease:
      self._lease.check()

  def push(self, only=''):
    """Copies files that changed, steps aside; only: of this directory."""
    with self._lock:
      names = []
      for parent, folders, inner in os.walk(self._home):
        place = os.path.relpath(parent, self._home)
        folders[:] = [x for x in folders if _is_pushed(place, x)]
        names += [os.path.normpath(os.path.join(place, x)) for x in inner]
      # Another thread may be writing a file, which then has another name.
      names = [x for x in names if not re.search(r'\.tmp\d+$', x)]
      names = [x for x in names if only in x.split('/')[:-1] or not only]
      config = phases_lib.CONFIG_FILE
      if config not in names and not only:  # the run has not begun
        return
      # The run's config last: it says that the first copy is whole.
      names = [x for x in names if x not in (config, phases_lib.LOCK_FILE)]
      self._upload({x: self._home / x for x in names})
      if not only:
        self._upload({config: self._home / config})

  def commit(self, directory, path=None):
    """Makes a step of the bucket equal to that on disk.

    Args:
      directory: of the step.
      path: where it is now; None: there.
    """
    path = Path(path or directory)
    with self._lock:
      step = str(Path(directory).relative_to(self._home))
      data = (path / manifest.FILE).read_bytes()
      before = self._manifests.get(step)
      if before == data:
        return
      self._lease.renew()
      self.push()
      target = f'{step}/{manifest.FILE}'
      if before is None:
        self._discard(target)  # left by a process that lost the lease
        names = [x.relative_to(path) for x in path.rglob('*') if x.is_file()]
        names = [str(x) for x in names if str(x) != manifest.FILE]
        self._upload({f'{step}/{x}': path / x for x in names})
      else:
        # Manifest and files agree at every moment, as in `manifest.replace`.
        old, new = json.loads(before), json.loads(data)
        both = {x: new[x] + old.get(x, []) for x in new}
        self._put(target, json.dumps(both).encode())
        changed = [x for x in new if new[x] != old.get(x)]
        self._upload({f'{step}/{x}': path / x for x in changed})
      self._lease.renew()
      generation = self._generations.get(target)
      self._generations[target] = self._bucket.write(
          self._front + target, data, generation
      )
      self._manifests[step] = data

  def remove(self, directory):
    """Removes a step, its manifest first; a copy set aside is pushed before."""
    with self._lock:
      step = str(Path(directory).relative_to(self._home))
      self._lease.renew()
      if step in self._manifests:  # not a torn one
        self.push()
      self._manifests.pop(step, None)
      self._discard(f'{step}/{manifest.FILE}')
      names = [x for x in self._generations if object_store.step_of(x) == step]
      object_store.in_threads(self._discard, names)

  def close(self):
    """Frees the lease; copies nothing."""
    _mirrors.pop(self._home, None)
    object_store.forget(self._uri)
    if self._lease:
      self._lease.release(is_unused=not self._generations)

  def _generation(self, name):
    return self._bucket.generation(self._front + name)

  def _clear(self):
    """Removes all files of the directory, except for caches."""
    for path in self._home.glob('*'):
      is_phase = path.is_dir() and (path / phases_lib.CONFIG_FILE).exists()
      for inner in path.glob('*') if is_phase else (path,):
        if inner.name not in _MINE and inner.is_dir():
          shutil.rmtree(inner)
        elif not inner.is_dir():
          inner.unlink()

  def _download(self, names):
    """Copies objects to the directory."""
    found = {self._front + x: self._generations[x] for x in names}
    paths = {x: self._home / x.removeprefix(self._front) for x in found}
    if found:
      collective.log(f'{self._uri}: copies {len(found):,} objects')
    object_store.download(self._bucket, found, paths)
    for name, path in paths.items():
      self._copied[name.removeprefix(self._front)] = _stat(path)

  def _upload(self, paths):
    """Copies files that changed, {name: path}; large ones one by one."""
    stats = {name: _stat(path) for name, path in paths.items()}
    names = [name for name in paths if self._copied.get(name) != stats[name]]

    def copy(name):
      self._put(name, paths[name].read_bytes())
      self._copied[name] = stats[name]

    small = [name for name in names if stats[name][0] <= _SMALL]
    object_store.in_threads(copy, small)
    for name in set(names).difference(small):
      copy(name)

  def _put(self, name, data):
    """Writes an object; the holder of the lease replaces whatever is there."""
    write = lambda generation: self._bucket.write(
        self._front + name, data, generation
    )
    try:
      self._generations[name] = write(self._generations.get(name))
    except object_store.Replaced:
      if not self._lease:
        raise
      found = self._generation(name)
      self._lease.renew()  # what is there is older than this
      self._generations[name] = write(found)

  def _discard(self, name):
    """Removes an object if it exists; the lease was renewed just before."""
    known = self._generations.pop(name, None) or self._generation(name)
    self._copied.pop(name, None)
    if known is not None:
      # One that another process wrote since then is removed by the next start.
      with contextlib.suppress(object_store.Replaced):
        self._bucket.write(self._front + name, None, known)


def _is_pushed(place, folder):
  """Whether a directory is copied with other files: no step, no cache."""
  if os.path.basename(place) == 'checkpoints':
    is_unfinished = checkpoint.UNFINISHED in folder
    return not checkpoint.is_step(folder) and not is_unfinished
  return folder not in _MINE


def _stat(path):
  found = os.stat(path)
  return found.st_size, found.st_mtime_ns, found.st_ino
