"""Drives Chromium over a pipe, with the DevTools protocol."""

import base64
import contextlib
import io
import json
import os
import select
import subprocess
import time

import numpy as np

from tests import browser

_TIMEOUT = 60  # seconds


class Page:
  """One page of a browser: keys, sizes, scripts, errors and pictures."""

  def __init__(self, send, errors):
    self._send, self.errors = send, errors
    for domain in 'Runtime', 'Log':
      send(f'{domain}.enable')

  def open(self, url):
    """Loads a page and waits until it is complete."""
    self._send('Page.navigate', url=url)
    end = time.monotonic() + _TIMEOUT
    state = '[location.href, document.readyState]'
    while self.run(state) != [url, 'complete']:
      assert time.monotonic() < end, f'{url} is not complete'
      time.sleep(0.02)

  def run(self, script):
    """Returns the value of a JavaScript expression."""
    done = self._send('Runtime.evaluate', expression=script, returnByValue=True)
    assert 'exceptionDetails' not in done, done
    return done['result'].get('value')

  def press(self, key):
    """Presses Tab or Enter."""
    code = {'Tab': 9, 'Enter': 13}[key]
    event = dict(key=key, code=key, windowsVirtualKeyCode=code)
    text = {'text': '\r'} if key == 'Enter' else {}
    self._send('Input.dispatchKeyEvent', type='keyDown', **event, **text)
    self._send('Input.dispatchKeyEvent', type='keyUp', **event)

  def resize(self, width, height, mobile=False):
    """Sets the size of the window in CSS pixels."""
    size = dict(width=width, height=height, deviceScaleFactor=1, mobile=mobile)
    self._send('Emulation.setDeviceMetricsOverride', **size)

  def emulate(self, media='', scheme='light'):
    """Shows the page as in print (media='print') or in a colour scheme."""
    scheme = dict(name='prefers-color-scheme', value=scheme)
    self._send('Emulation.setEmulatedMedia', media=media, features=[scheme])

  def screenshot(self):
    """Returns the pixels of the window: uint8 [height, width, 3]."""
    from matplotlib import image  # pylint: disable=g-import-not-at-top

    done = self._send('Page.captureScreenshot')
    pixels = image.imread(io.BytesIO(base64.b64decode(done['data'])))
    return (pixels[..., :3] * 255).round().astype(np.uint8)


@contextlib.contextmanager
def open_page(profile):
  """Starts a browser, with a new directory for its files; yields its Page."""
  to_browser, ours_out = os.pipe()
  ours_in, from_browser = os.pipe()
  command = [*browser.command(profile), '--remote-debugging-pipe']
  # The protocol uses descriptors 3 and 4.
  moved = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
  process = subprocess.Popen(
      ['bash', '-c', moved, 'bash', *command],
      pass_fds=(to_browser, from_browser),
      stderr=subprocess.DEVNULL,
  )
  os.close(to_browser)
  os.close(from_browser)
  try:
    yield _attach(ours_out, ours_in)
  finally:
    process.kill()
    process.wait()
    os.close(ours_out)
    os.close(ours_in)


def _attach(out, into):
  """Returns the Page of a new tab."""
  number, data, errors = 0, b'', []

  def send(method, session=None, **params):
    nonlocal number, data
    number += 1
    message = dict(id=number, method=method, params=params)
    if session:
      message['sessionId'] = session
    os.write(out, json.dumps(message).encode() + b'\0')
    while True:
      while b'\0' not in data:
        ready, _, _ = select.select([into], [], [], _TIMEOUT)
        assert ready, f'no answer to {method}'
        chunk = os.read(into, 2**16)
        assert chunk, 'the browser ended'
        data += chunk
      line, data = data.split(b'\0', 1)
      answer = json.loads(line)
      if answer.get('method') in ('Runtime.exceptionThrown', 'Log.entryAdded'):
        errors.append(answer['params'])
      if answer.get('id') == number:
        assert 'error' not in answer, answer
        return answer['result']

  target = send('Target.createTarget', url='about:blank')['targetId']
  session = send('Target.attachToTarget', targetId=target, flatten=True)
  session = session['sessionId']
  return Page(lambda method, **params: send(method, session, **params), errors)
