"""A local stand-in for Google Cloud Storage: one bucket, with faults.

It has the part of the JSON API that TensorStore uses, preconditions included,
so it also serves tests of writing.
"""

import contextlib
import http.server
import itertools
import json
from pathlib import Path
import re
import threading
import time
from typing import NamedTuple
import urllib.parse

TOKEN = 'secret-token-of-a-test'
# For TensorStore: a login, and no server that has others.
ENVIRONMENT = {
    'GOOGLE_AUTH_TOKEN_FOR_TESTING': TOKEN,
    'GCE_METADATA_ROOT': '127.0.0.1:9',
}
_PATH = re.compile(r'(?:/upload)?/storage/v1/b/([^/]+)/o(?:/(.+))?')
_RANGE = re.compile(r'bytes=(\d*)-(\d*)')


class Fault(NamedTuple):
  """A fault in the next answer to a request that matches.

  Attributes:
    status: HTTP status instead of the answer.
    cut: close the connection after this many bytes of the body.
    lost: do what was asked, then close the connection without an answer.
    seconds: wait before the answer.
    then: called without arguments after the answer is made.
  """

  status: int = 0
  cut: int | None = None
  lost: bool = False
  seconds: float = 0
  then: object = None


class Server:
  """Calls `answer` with each request, until it is closed.

  Attributes:
    url: of the server.
  """

  def __init__(self):
    server = self

    class Handler(http.server.BaseHTTPRequestHandler):
      """Hands requests on."""

      protocol_version = 'HTTP/1.1'
      disable_nagle_algorithm = True

      def do_GET(self):
        server.answer(self)

      do_HEAD = do_POST = do_DELETE = do_GET

      def log_message(self, *_):
        pass

    self._server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    self._server.daemon_threads = True
    self._server.handle_error = lambda *_: None  # a client was killed
    threading.Thread(
        target=self._server.serve_forever, args=(0.05,), daemon=True
    ).start()
    self.url = f'http://127.0.0.1:{self._server.server_port}'

  def close(self):
    self._server.shutdown()
    self._server.server_close()


class Bucket(Server):
  """Serves a bucket; its url is the value for TENSORSTORE_GCS_HTTP_URL.

  Attributes:
    name: of the bucket.
    objects: {object: (bytes, generation)}.
    requests: (method, object or '' for a list, Range header or None).
    faults: list of (method, regex of the object, `Fault`); each answer removes
      the first that matches.
    always: a Fault of every answer, or None.
    page: the most names in an answer to a list.
  """

  def __init__(self, name='locost-test'):
    self.name, self.objects, self.requests = name, {}, []
    self.faults, self.always, self.page = [], None, 1000
    self._generations, self._lock = itertools.count(1000), threading.Lock()
    super().__init__()

  def put(self, name, data):
    """Creates or replaces an object."""
    data = data.encode() if isinstance(data, str) else data
    self.objects[name] = data, next(self._generations)

  def put_tree(self, directory, prefix):
    """Uploads the files of a directory; returns the gs:// path."""
    for path in sorted(Path(directory).rglob('*')):
      if path.is_file():
        name = path.relative_to(directory).as_posix()
        self.put(f'{prefix}/{name}', path.read_bytes())
    return f'gs://{self.name}/{prefix}'

  def answer(self, request):
    """Writes the answer to one request."""
    url = urllib.parse.urlsplit(request.path)
    query = dict(urllib.parse.parse_qsl(url.query))
    body = request.rfile.read(int(request.headers.get('Content-Length') or 0))
    match = _PATH.fullmatch(url.path)
    name = urllib.parse.unquote(match and match[2] or query.get('name', ''))
    wanted = request.headers.get('Range')
    self.requests.append((request.command, name, wanted))
    fault = self._next_fault(request.command, name)
    time.sleep(fault.seconds)
    if fault.status:
      answer = fault.status, {}, b'{"error": {"message": "injected"}}'
    elif match is None or match[1] != self.name:
      answer = 404, {}, b'{"error": {"message": "no such bucket"}}'
    else:
      with self._lock:
        answer = self._act(request.command, name, query, body, wanted)
    if fault.then:
      fault.then()
    self._send(request, fault, *answer)

  def _next_fault(self, method, name):
    with self._lock:
      for row in self.faults:
        if row[0] == method and re.search(row[1], name):
          self.faults.remove(row)
          return row[2]
    return self.always or Fault()

  def _act(self, method, name, query, body, wanted):
    """Does what is asked; returns (status, headers, body)."""
    data, generation = self.objects.get(name, (b'', 0))
    expected = int(query.get('ifGenerationMatch', generation))
    if method == 'GET' and not name:
      return self._list(query)
    if expected != generation:
      return 412, {}, b'{"error": {"message": "conditionNotMet"}}'
    if method == 'POST':
      self.put(name, body)
      return 200, {}, json.dumps(self._metadata(name)).encode()
    if not generation:
      return 404, {}, b'{"error": {"message": "no such object"}}'
    if method == 'DELETE':
      del self.objects[name]
      return 204, {}, b''
    if query.get('ifGenerationNotMatch') == str(generation):
      return 304, {}, b''
    if query.get('alt') != 'media':
      return 200, {}, json.dumps(self._metadata(name)).encode()
    headers = {'x-goog-generation': str(generation)}
    if wanted is None:
      return 200, headers, data
    first, last = _RANGE.fullmatch(wanted).groups()
    start = int(first) if first else max(len(data) - int(last), 0)
    stop = min(int(last) + 1, len(data)) if first and last else len(data)
    if start >= len(data):
      return 416, headers | {'Content-Range': f'bytes */{len(data)}'}, b''
    headers['Content-Range'] = f'bytes {start}-{stop - 1}/{len(data)}'
    return 206, headers, data[start:stop]

  def _list(self, query):
    """Returns a page of names, in order, in the half-open range asked for."""
    names = sorted(
        name
        for name in self.objects
        if name.startswith(query.get('prefix', ''))
        and name >= query.get('startOffset', '')
        and ('endOffset' not in query or name < query['endOffset'])
    )
    start, size = int(query.get('pageToken', 0)), self.page
    page = {'items': list(map(self._metadata, names[start : start + size]))}
    if names[start + size :]:
      page['nextPageToken'] = str(start + size)
    return 200, {}, json.dumps(page).encode()

  def _metadata(self, name):
    data, generation = self.objects[name]
    return dict(
        kind='storage#object',
        name=name,
        bucket=self.name,
        size=str(len(data)),
        generation=str(generation),
        metageneration='1',
    )

  def _send(self, request, fault, status, headers, body):
    if fault.lost or fault.cut is not None:
      request.close_connection = True
    if fault.lost:
      return
    with contextlib.suppress(OSError):  # the client hangs up
      request.send_response(status)
      for key, value in headers.items():
        request.send_header(key, value)
      request.send_header('Content-Length', str(len(body)))
      request.end_headers()
      request.wfile.write(body[: fault.cut])
