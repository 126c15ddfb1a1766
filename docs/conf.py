"""The manual: README, these pages, and API pages made from the docstrings.

  pip install -e '.[docs]' && sphinx-build -W docs docs/_build
"""

from pathlib import Path
import re

project = 'locost_jax'
author = copyright = 'The locost_jax authors'
extensions = ['myst_parser', 'sphinx.ext.autodoc', 'sphinx.ext.napoleon']
exclude_patterns = ['_build']
html_theme = 'furo'
html_title = project
myst_heading_anchors = 4
autodoc_default_options = {'members': True}
autodoc_member_order = 'bysource'
autodoc_typehints = 'none'  # docstrings give shapes, which types do not
napoleon_use_ivar = True

REPOSITORY = 'https://github.com/locost-jax/locost_jax/blob/main/'


def _rewrite_links(app, page, source):
  """Puts README on the first page; links what is no page to the repository.

  tests/test_readme.py checks that every file linked in this way exists.
  """
  del app
  if page == 'index':
    readme = (Path(__file__).parent.parent / 'README.md').read_text()
    links = re.sub(r'\]\((?!http|docs/|#)', '](../', readme)
    source[0] = links.replace('](docs/', '](') + source[0]
  source[0] = source[0].replace('](../', f']({REPOSITORY}')


def _plain_text(app, what, name, obj, options, lines):
  """Keeps what reStructuredText would take for markup in a docstring.

  The docstring of a module, with its equations and tables, is shown as it is.
  """
  del app, name, obj, options
  if what == 'module':
    lines[1:] = ['', '::', '', *('  ' + line for line in lines[1:]), '']
  else:
    lines[:] = [re.sub(r'([|*])', r'\\\1', line) for line in lines]


def setup(app):
  """Registers both; before napoleon, which reads `Args:`."""
  app.connect('source-read', _rewrite_links)
  app.connect('autodoc-process-docstring', _plain_text, priority=1)
