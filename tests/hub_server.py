"""A stand-in for the Hugging Face Hub on this machine: one model, read only."""

import hashlib
import http.server
import json
from pathlib import Path
import threading
import urllib.parse


class Hub:
  """Serves a directory's files as a model's, until it is closed.

  Attributes:
    url: what HF_ENDPOINT is to be.
    asked: (method, path) of all requests so far.
  """

  def __init__(self, directory, name, revisions):
    """Starts.

    Args:
      directory: with the files.
      name: 'org/name'.
      revisions: {branch or tag: commit}.
    """
    self._directory, self._name = Path(directory), name
    self._revisions = {**revisions, **{x: x for x in revisions.values()}}
    self.asked = []
    hub = self

    class Handler(http.server.BaseHTTPRequestHandler):
      """Answers as far as the client of the Hub needs it."""

      protocol_version = 'HTTP/1.1'

      def do_GET(self):
        hub.answer(self)

      do_HEAD = do_GET

      def log_message(self, *_):
        pass

    self._server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    self.url = f'http://127.0.0.1:{self._server.server_port}'
    threading.Thread(target=self._server.serve_forever, daemon=True).start()

  def close(self):
    self._server.shutdown()
    self._server.server_close()

  def answer(self, request):
    """Writes the answer to one request."""
    path = urllib.parse.unquote(urllib.parse.urlsplit(request.path).path)
    self.asked.append((request.command, path))
    api, files = f'/api/models/{self._name}', f'/{self._name}/resolve/'
    status, headers, body = 404, {'X-Error-Code': 'RepoNotFound'}, b''
    if path.startswith(files):
      revision, _, file = path.removeprefix(files).partition('/')
      found = self._directory / file
      if revision in self._revisions and found.is_file():
        status, body = 200, found.read_bytes()
        headers = {
            'ETag': f'"{hashlib.sha256(body).hexdigest()}"',
            'X-Repo-Commit': self._revisions[revision],
        }
    elif path == api or path.startswith(api + '/'):
      headers = {'Content-Type': 'application/json'}
      kind, _, revision = path.removeprefix(api).strip('/').partition('/')
      commit = self._revisions.get(revision or 'main')
      listed = sorted(file for file in self._directory.iterdir())
      if commit is None:
        headers = {'X-Error-Code': 'RevisionNotFound'}
      elif kind == 'tree':
        status, body = (
            200,
            json.dumps(
                [
                    dict(
                        type='file',
                        path=file.name,
                        size=file.stat().st_size,
                        oid=hashlib.sha1(file.read_bytes()).hexdigest(),
                    )
                    for file in listed
                ]
            ).encode(),
        )
      else:
        status, body = (
            200,
            json.dumps(
                dict(
                    _id='0',
                    id=self._name,
                    modelId=self._name,
                    sha=commit,
                    private=False,
                    tags=[],
                    downloads=0,
                    likes=0,
                    siblings=[dict(rfilename=file.name) for file in listed],
                )
            ).encode(),
        )
    request.send_response(status)
    for key, value in headers.items():
      request.send_header(key, value)
    request.send_header('Content-Length', str(len(body)))
    request.end_headers()
    if request.command == 'GET':
      request.wfile.write(body)
