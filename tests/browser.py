"""Finds the browser for the tests that need one."""

import os
import shutil

import pytest

NAMES = ('chromium', 'chromium-browser', 'google-chrome', 'chrome')
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)


def reason_to_skip(found, environment):
  """Returns why the tests of pages are skipped; '' if they run.

  In CI a missing browser is a failure, unless NO_CHROMIUM gives a reason.
  """
  stated = environment.get('NO_CHROMIUM', '')
  if found or (environment.get('CI') == 'true' and not stated):
    return ''
  return stated or 'no Chromium on this machine'


needed = pytest.mark.skipif(
    bool(reason_to_skip(CHROMIUM, os.environ)),
    reason=reason_to_skip(CHROMIUM, os.environ) or 'there is one',
)


def path():
  """Returns the browser's path; fails the test if there is no browser."""
  assert CHROMIUM, (
      f'CI=true, and none of {", ".join(NAMES)} on PATH: install Chromium, or '
      'say in NO_CHROMIUM why it cannot be'
  )
  return CHROMIUM


def command(profile):
  """Returns the command of a browser whose files are in a new directory."""
  flags = '--headless --no-sandbox --disable-gpu --no-first-run'
  more = ['--disable-background-networking', f'--user-data-dir={profile}']
  return [path(), *flags.split(), *more]
