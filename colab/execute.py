"""Runs the notebooks from a clean kernel and keeps what they show.

  python colab/execute.py                          # all of them, some minutes
  python colab/execute.py colab/quickstart.ipynb

Each runs with its defaults in a folder of its own, where it finds this
checkout's library and configs; what it writes there is dropped. Outputs are
kept only if `problems` finds none.
"""

import ast
import base64
import hashlib
import io
import os
from pathlib import Path
import re
import sys
import tempfile
import time

import nbclient
import nbformat
from PIL import Image  # comes with matplotlib

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / 'colab').glob('*.ipynb'))
LARGEST = 750_000  # bytes of a notebook
_PATH = re.compile(
    r'(?<![\w.:/<])/(?:work|tmp|home|root|content|mnt|usr|opt|var|Users)/\S*'
)
_DATA = re.compile(r'data:text/html;base64,([\w+/=]+)')


def execute(path, folder, parameters=(), timeout=1800, wheel=None, **kernel):
  """Runs a notebook in a folder that looks like this checkout.

  Args:
    path: of the notebook, which is not changed.
    folder: an empty directory; what the notebook writes is in it afterwards.
    parameters: other values of the names in the cell tagged `parameters`.
    timeout: seconds for a cell.
    wheel: a file that the notebook finds instead of the checkout.
    **kernel: kernel_name of another Python.

  Returns:
    The notebook with its outputs. A cell that fails raises.
  """
  folder = Path(folder)
  (folder / 'colab').mkdir()
  if wheel:
    (folder / 'colab' / wheel.name).symlink_to(wheel)
  else:
    for name in ('locost_jax', 'configs', 'setup.cfg'):
      (folder / name).symlink_to(ROOT / name)
  notebook = nbformat.read(path, 4)
  set_parameters(notebook, dict(parameters))
  nbclient.NotebookClient(
      notebook,
      timeout=timeout,
      record_timing=False,
      coalesce_streams=True,
      **kernel,
      resources=dict(metadata=dict(path=str(folder / 'colab'))),
  ).execute()
  notebook.metadata.language_info = {'name': 'python'}
  notebook.metadata.executed = digest(notebook)
  shrink(notebook)
  return notebook


def set_parameters(notebook, values):
  """Changes the values of names in the cell tagged `parameters`."""
  (cell,) = [
      cell
      for cell in notebook.cells
      if 'parameters' in cell.metadata.get('tags', ())
  ]
  known = [node.targets[0].id for node in ast.parse(cell.source).body]
  unknown = sorted(set(values) - set(known))
  if unknown:
    raise ValueError(f'{unknown} are not among the parameters {known}')
  cell.source += ''.join(
      f'\n{name} = {value!r}' for name, value in values.items()
  )


def shrink(notebook):
  """Gives every picture a palette: a third of the bytes."""
  for cell in notebook.cells:
    for output in cell.get('outputs', ()):
      picture = output.get('data', {}).get('image/png')
      if picture:
        small = io.BytesIO()
        Image.open(io.BytesIO(base64.b64decode(picture))).convert(
            'RGB'
        ).quantize(256, dither=Image.Dither.NONE).save(
            small, 'png', optimize=True
        )
        output.data['image/png'] = base64.b64encode(small.getvalue()).decode()


def digest(notebook):
  """Tells the code of one notebook from another's."""
  sources = [cell.source for cell in notebook.cells if cell.cell_type == 'code']
  return hashlib.sha256('\n'.join(sources).encode()).hexdigest()


def text_of(cell):
  """All that a cell's outputs say, embedded pages decoded, without pictures."""
  texts = []
  for output in cell.get('outputs', ()):
    texts.append(output.get('text', ''))
    texts += [
        value
        for kind, value in output.get('data', {}).items()
        if kind.startswith('text/')
    ]
  text = '\n'.join(texts)
  pages = [base64.b64decode(page).decode() for page in _DATA.findall(text)]
  return '\n'.join([_DATA.sub('', text), *pages])


def problems(notebook):
  """Returns the reasons not to keep a notebook with outputs, as lines."""
  found = []
  size = len(nbformat.writes(notebook))
  if size > LARGEST:
    found.append(f'{size} bytes: expected at most {LARGEST}')
  code = [cell for cell in notebook.cells if cell.cell_type == 'code']
  if [cell.execution_count for cell in code] != [
      i + 1 for i in range(len(code))
  ]:
    found.append('not run from top to bottom in a clean kernel')
  if notebook.metadata.get('executed') != digest(notebook):
    found.append('its outputs are of other code: run colab/execute.py')
  for cell in notebook.cells:
    for place in cell.source, text_of(cell):
      found += [
          f'{cell.id}: a path of a machine: {path}'
          for path in _PATH.findall(place)
      ]
  for cell in code:
    kinds = [output.output_type for output in cell.outputs]
    if 'error' in kinds:
      found.append(f'{cell.id}: failed')
    for word in ('Warning', 'Traceback', '\x1b', '\r'):
      if word in text_of(cell):
        found.append(f'{cell.id}: shows {word!r}')
  return found


def main(paths):
  for path in paths or NOTEBOOKS:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
      notebook = execute(path, folder)
    seconds, found = time.monotonic() - begun, problems(notebook)
    for line in found:
      print(f'{path}: {line}', file=sys.stderr)
    if found:
      return 1
    nbformat.write(notebook, path)
    print(f'{path}: {seconds:.0f} s, {os.path.getsize(path) / 1e3:.0f} kB')
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
