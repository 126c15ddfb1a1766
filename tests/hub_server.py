"""A local stand-in for the Hugging Face Hub: one model, read only."""

import contextlib
import hashlib
import json
from pathlib import Path
import time
from typing import NamedTuple
import urllib.parse

from tests import bucket_server

# The Hub stores such files in LFS.
LARGE = ('.safetensors', '.bin', '.model', '.msgpack')


class Fault(NamedTuple):
  """A fault in the next answer about a file or the model.

  Attributes:
    cut: close the connection after this many bytes of the body.
    status: HTTP status instead of 200.
    code: X-Error-Code of this status.
    damage: change the first byte of the body.
    seconds: send the body in ten pieces over this time.
    more: bytes that follow the body.
    announce: whether Content-Length counts them; else the body is chunked.
  """

  cut: int | None = None
  status: int = 0
  code: str = ''
  damage: bool = False
  seconds: float = 0
  more: int = 0
  announce: bool = True


class Hub(bucket_server.Server):
  """Serves a directory's files as a model; its url is HF_ENDPOINT's value.

  Attributes:
    requests: (method, path) of all requests so far.
    ranges: (file, Range header or None) of all requests for files.
    faults: {file name, or '' for the model: list of `Fault`}; each answer
      removes the first.
    change: keys of the model's description to replace; those in 'sibling' are
      of config.json.
    tokens: the Authorization headers of all requests so far.
    sent: bytes of `Fault.more` that were sent.
  """

  def __init__(self, directory, name, revisions):
    """Starts the server; name is 'org/name', revisions {branch: commit}."""
    self._directory, self._name = Path(directory), name
    self._revisions = {**revisions, **{x: x for x in revisions.values()}}
    self.requests, self.ranges, self.faults = [], [], {}
    self.change, self.tokens, self.sent = {}, [], 0
    super().__init__()

  def answer(self, request):
    """Writes the answer to one request."""
    path = urllib.parse.unquote(urllib.parse.urlsplit(request.path).path)
    self.requests.append((request.command, path))
    self.tokens.append(request.headers.get('Authorization'))
    api, files = f'/api/models/{self._name}', f'/{self._name}/resolve/'
    if path.startswith(files):
      revision, _, file = path.removeprefix(files).partition('/')
      fault = self._next_fault(file)
      answer = self._file(request, revision, file, fault)
    elif path == api or path.startswith(api + '/'):
      fault = self._next_fault('')
      answer = self._model(path.removeprefix(api))
    else:
      fault, answer = Fault(), (404, {'X-Error-Code': 'RepoNotFound'}, b'')
    if fault.status:
      code = {'X-Error-Code': fault.code} if fault.code else {}
      answer = fault.status, code, b''
    self._send(request, fault, *answer)

  def _next_fault(self, name):
    faults = self.faults.get(name)
    return faults.pop(0) if faults else Fault()

  def _file(self, request, revision, name, fault):
    """Returns (status, headers, body) of a file."""
    path = self._directory / name
    self.ranges.append((name, request.headers.get('Range')))
    if revision not in self._revisions or not path.is_file():
      return 404, {'X-Error-Code': 'EntryNotFound'}, b''
    body = path.read_bytes()
    headers = {
        'ETag': f'"{_metadata(path)["checksum"]}"',
        'X-Repo-Commit': self._revisions[revision],
    }
    if fault.damage:
      body = bytes([body[0] ^ 1]) + body[1:]
    if 'Range' not in request.headers:
      return 200, headers, body
    first = int(request.headers['Range'].removeprefix('bytes=').rstrip('-'))
    size = len(body)
    headers['Content-Range'] = f'bytes {first}-{size - 1}/{size}'
    return 206, headers, body[first:]

  def _model(self, path):
    """Returns (status, headers, body) of the model's description."""
    _, _, revision = path.strip('/').partition('/')
    commit = self._revisions.get(revision or 'main')
    if commit is None:
      return 404, {'X-Error-Code': 'RevisionNotFound'}, b''
    files = sorted(self._directory.iterdir())
    model = dict(_id='0', id=self._name, modelId=self._name, sha=commit)
    model |= dict(private=False, tags=[], downloads=0, likes=0)
    model['siblings'] = [_metadata(path)['sibling'] for path in files]
    change = dict(self.change)
    for sibling in model['siblings']:
      if sibling['rfilename'] == 'config.json':
        sibling.update(change.pop('sibling', {}))
    model.update(change)
    kind = {'Content-Type': 'application/json'}
    return 200, kind, json.dumps(model).encode()

  def _send(self, request, fault, status, headers, body):
    request.send_response(status)
    for key, value in headers.items():
      request.send_header(key, value)
    if fault.announce:
      request.send_header('Content-Length', str(len(body) + fault.more))
    else:
      request.send_header('Transfer-Encoding', 'chunked')
    request.end_headers()
    if request.command != 'GET':
      return
    pieces = 10 if fault.seconds else 1
    size = max(-(-len(body) // pieces), 1)
    chunks = [
        body[i : min(i + size, fault.cut or 10**9)]
        for i in range(0, len(body), size)
    ]
    with contextlib.suppress(OSError):  # the client hangs up
      for chunk in chunks:
        self._write(request, fault, chunk)
        time.sleep(fault.seconds / pieces)
      for _ in range(0, fault.more, 10**6):
        self._write(request, fault, bytes(10**6))
        self.sent += 10**6
    if fault.cut is not None or fault.more:
      request.close_connection = True

  def _write(self, request, fault, chunk):
    if not fault.announce:
      chunk = b'%x\r\n%s\r\n' % (len(chunk), chunk)
    request.wfile.write(chunk)
    request.wfile.flush()


def _metadata(path):
  """Returns the Hub's description of a file: checksum, entry in siblings."""
  body = path.read_bytes()
  git = hashlib.sha1(b'blob %d\0' % len(body) + body).hexdigest()
  sibling = dict(rfilename=path.name, size=len(body), blobId=git)
  if path.suffix not in LARGE:
    return dict(checksum=git, sibling=sibling)
  checksum = hashlib.sha256(body).hexdigest()
  sibling['blobId'] = hashlib.sha1(checksum.encode()).hexdigest()  # LFS pointer
  sibling['lfs'] = dict(sha256=checksum, size=len(body), pointerSize=134)
  return dict(checksum=checksum, sibling=sibling)
