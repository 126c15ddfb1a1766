"""The notebooks: run from a clean kernel, and what was committed of them.

Here they run on a model and data of moments; for what is committed
colab/execute.py runs them at their defaults.
"""

import ast
import configparser
import contextlib
from importlib import metadata
import json
import os
from pathlib import Path
import re
import subprocess
import sys
import types

import nbclient
import nbformat
import numpy as np
import pytest

from colab import execute
from configs import default
import locost_jax
from locost_jax.models import locost
from tests import products
from tests import test_wheel
from tests import tiny_run
from tests.runs import test_main

ROOT = execute.ROOT
NAMES = [path.stem for path in execute.NOTEBOOKS]
PICTURES = dict.fromkeys(NAMES, 0)
PICTURES |= dict(finetune_your_data=1, state_space_kernels=6)
SYSTEMS = 'locost', 'longt5', 'pagesum', 'simcas'


def read(name):
  return nbformat.read(ROOT / 'colab' / f'{name}.ipynb', 4)


def run(name, folder, parameters=()):
  folder.mkdir()
  return execute.execute(ROOT / 'colab' / f'{name}.ipynb', folder, parameters)


def shown(notebook, id_):
  """The text of a cell's outputs."""
  (cell,) = [cell for cell in notebook.cells if cell.id == id_]
  return execute.text_of(cell)


def count_pictures(notebook):
  return sum(
      'image/png' in output.get('data', {})
      for cell in notebook.cells
      for output in cell.get('outputs', ())
  )


def check_scores(text):
  """A table of losses and ROUGE scores that are possible."""
  rows = re.findall(
      r'^(after training.*?|before training|lead.*?)((?: +\d+\.\d+)+)$',
      text,
      re.M,
  )
  assert [name.split(',')[0].split(':')[0].rstrip() for name, _ in rows] == [
      'before training',
      'after training',
      'lead',
  ]
  for name, numbers in rows:
    *losses, r1, r2, rl, rlsum, mean, recall = map(float, numbers.split())
    assert 0 <= r2 <= rlsum <= r1 <= 100, name
    assert r2 <= rl <= r1, name
    assert mean == pytest.approx((r1 + r2 + rlsum) / 3, abs=0.011)
    assert 0 <= recall <= 100
    assert len(losses) == 2 * (not name.startswith('lead')), name
    assert all(0 < x < 12 for x in losses), name


def check_page(text):
  """The page of a document: linked both ways, self-contained."""
  assert '<section class="document" id="document">' in text
  for links in (r'href="#s1"', r'id="s1"', r'href="#p1"', r'id="p1"'):
    assert re.search(links, text), links
  assert not re.search(r'(?:src|href)="https?:', text)


def test_quickstart(tmp_path):
  model, book = tmp_path / 'model', tmp_path / 'book.txt'
  tiny_run.make(model)
  text = '\n\n'.join(
      f'Chapter {i}. It has words. {"More of them. " * 20}' for i in range(40)
  )
  book.write_text(text)
  given = dict(BOOK=str(book), CHECKPOINT=str(model))
  notebook = run('quickstart', tmp_path / 'room', given)
  home = tmp_path / 'room' / 'runs' / 'quickstart_notebook'
  rows = test_main.read_rows(home / 'summaries.jsonl')
  assert [row['tokens_read'] for row in rows] == [
      len(text) + 1,
      len((home / 'first_pages.txt').read_text()) + 1,
  ]
  summary = shown(notebook, 'summary').replace('\n    ', ' ')
  assert rows[0]['prediction'] and rows[0]['prediction'] in summary
  assert f'read {len(text) + 1:,} of' in shown(notebook, 'summary')
  page = (home / 'where-2.html').read_text()
  assert page in shown(notebook, 'page')
  check_page(page)
  (cell,) = [cell for cell in notebook.cells if cell.id == 'python']
  texts = ast.literal_eval(ast.parse(cell.source).body[0].value)
  for expected in locost_jax.load(str(model)).summarize(texts):
    assert f'  -> {expected}\n' in shown(notebook, 'python')


# A kernel in which Colab's module seems to be there, which JAX imports too.
COLAB = """
import sys, types
from ipykernel import kernelapp
sys.modules['google.colab'] = colab = types.ModuleType('google.colab')
colab.output = colab
kernelapp.launch_new_instance()
"""


def packages(python):
  """Returns {package: version} of an environment."""
  pip = [python, '-m', 'pip', 'list', '--format=json']
  listed = json.loads(subprocess.check_output(pip))
  return {row['name'].lower(): row['version'] for row in listed}


@pytest.mark.colab
def test_quickstart_on_colab(tmp_path, monkeypatch):
  """Colab's packages and a wheel: pip replaces only JAX, Flax and Orbax."""
  python = tmp_path / 'venv' / 'bin' / 'python'
  subprocess.run([sys.executable, '-m', 'venv', tmp_path / 'venv'], check=True)
  pip = [python, '-m', 'pip', '-q', '--disable-pip-version-check']
  listed = ROOT / 'colab' / 'packages.txt'
  subprocess.run([*pip, 'install', '--no-deps', '-r', listed], check=True)
  source = test_wheel.copy_checkout(tmp_path / 'source')
  build = [*pip, 'wheel', '--no-deps', '-w', tmp_path, source]
  subprocess.run(build, check=True)
  (wheel,) = tmp_path.glob('*.whl')
  before = packages(python)
  kernel = tmp_path / 'kernels' / 'colab' / 'kernel.json'
  kernel.parent.mkdir(parents=True)
  argv = [str(python), '-c', COLAB, '-f', '{connection_file}']
  kernel.write_text(json.dumps(dict(argv=argv, display_name='Colab')))
  monkeypatch.setenv('JUPYTER_PATH', str(tmp_path))
  monkeypatch.setenv('PATH', f'{python.parent}:{os.environ["PATH"]}')
  monkeypatch.delenv('PYTHONPATH', raising=False)
  book, room = tmp_path / 'book.txt', tmp_path / 'room'
  book.write_text('It has words. ' * 50)
  room.mkdir()
  notebook = execute.execute(
      ROOT / 'colab' / 'quickstart.ipynb',
      room,
      dict(BOOK=str(book), STEPS=4),
      wheel=wheel,
      kernel_name='colab',
  )
  check_page(shown(notebook, 'page'))
  assert shown(notebook, 'python').count('\n  -> ') == 2
  after = packages(python)
  changed = {name for name in before if after.get(name) != before[name]}
  assert changed <= {'jax', 'jaxlib', 'flax', 'orbax-checkpoint'}
  assert after['locost_jax'] == locost_jax.__version__
  assert int(after['jax'].split('.')[1]) >= 10


def make_untrained(directory, name):
  """Makes the WORKDIR of a small model of random weights that reads bytes."""
  config = tiny_run.make_config()
  sizes = {k: v for k, v in config.model.items() if type(v) is int}
  config.model = getattr(default, name)()
  sizes |= dict(decoder_d_ff=16, max_positions=64, pad_id=0)
  config.model.update({k: v for k, v in sizes.items() if k in config.model})
  if name in ('pagesum', 'simcas'):
    config.data.pages = 'spatial' if name == 'pagesum' else 'chunks'
    config.data.update(dict(page_length=32, num_pages=4))
  tiny_run.make_untrained(directory, config)


def test_compare_systems(tmp_path):
  """Checkpoints of one's own: nothing is trained, four pages are shown."""
  for name in SYSTEMS:
    make_untrained(tmp_path / name, name)
  document = tmp_path / 'document.txt'
  document.write_text(
      '\n\n'.join(f'Item {i} is here. It is red.' for i in range(9))
  )
  given = {name.upper(): str(tmp_path / name) for name in SYSTEMS}
  given['DOCUMENT'] = str(document)
  notebook = run('compare_systems', tmp_path / 'room', given)
  home = tmp_path / 'room' / 'runs' / 'compare_notebook'
  assert 'no model was trained' in shown(notebook, 'scores')
  table = shown(notebook, 'summaries')
  for name in SYSTEMS:
    (row,) = test_main.read_rows(home / f'{name}.jsonl')
    kept, selected = re.search(
        rf'^{name} +([\d,]+) +(all|[\d,]+) ', table, re.M
    ).groups()
    assert kept == f'{row["tokens_read"]:,}'
    assert (selected == 'all') == (name != 'simcas')
    page = (home / f'{name}.html').read_text()
    assert page in shown(notebook, 'page')
    assert '<section class="document" id="document">' in page
  # PageSum's four pages hold less than the document, the others read it all.
  assert (
      re.findall(r'^\w+ +([\d,]+) +(?:all|[\d,]+) ', table, re.M)[:2]
      == [f'{len(document.read_text()) + 1}'] * 2
  )


def check_systems(notebook):
  """Four models were trained and have scores; all read the whole document."""
  scores = r'^(\w+) ((?: *\d+\.\d\d){5})$'
  rows = re.findall(scores, shown(notebook, 'scores'), re.M)
  assert [name for name, _ in rows] == list(SYSTEMS)
  for name, numbers in rows:
    loss, r1, r2, rlsum, recall = map(float, numbers.split())
    assert 0 < loss < 8 and 0 <= r2 <= rlsum <= r1 < 100, name
    assert r1 > 15 and 0 <= recall <= 100, name
  counts = r'^(\w+) +([\d,]+) +(all|[\d,]+) '
  kept = re.findall(counts, shown(notebook, 'summaries'), re.M)
  assert [name for name, *_ in kept] == list(SYSTEMS)
  assert all(int(n.replace(',', '')) > 1000 for _, n, _ in kept)
  selected = {name: n for name, _, n in kept}
  assert selected.pop('simcas') != 'all' and set(selected.values()) == {'all'}
  assert shown(notebook, 'page').count('id="document"') == 4


@pytest.mark.slow
def test_finetune_your_data(tmp_path):
  rows = [
      dict(
          document=f'Thing {i} is kept in box {i % 7}. ' * 3
          + f'Nobody opens box {i % 5}.',
          summary=f'Thing {i} lies in box {i % 7}.',
      )
      for i in range(320)
  ]
  given = dict(
      TRAIN=test_main.write_rows(tmp_path / 'train.jsonl', rows[:300]),
      TEST=test_main.write_rows(tmp_path / 'test.jsonl', rows[300:]),
      STEPS=6,
      BATCH_SIZE=4,
      MAX_INPUT_LENGTH=32,
      MAX_TARGET_LENGTH=16,
  )
  notebook = run('finetune_your_data', tmp_path / 'room', given)
  home = tmp_path / 'room' / 'runs' / 'finetune_notebook'
  assert 'test' in shown(notebook, 'inspect')
  metrics = test_main.read_rows(home / 'model' / 'metrics.jsonl')
  assert max(row['step'] for row in metrics) == 6
  assert count_pictures(notebook) == 1
  assert 'test, 20 documents' in shown(notebook, 'scores')
  check_scores(shown(notebook, 'scores'))
  assert len(re.findall('^reference ', shown(notebook, 'scores'), re.M)) == 3
  assert 'writes the same.' in shown(notebook, 'python')
  text = (home / 'my_text.txt').read_text()
  (there,) = locost_jax.load(str(home / 'taken')).summarize([text])
  assert there in shown(notebook, 'python')
  line = f'{" ".join(there.split())} (cut at 16 tokens)'
  assert line in shown(notebook, 'text').splitlines()
  page = (home / 'where.html').read_text()
  assert page in shown(notebook, 'page')
  check_page(page)


@products.few(
    'model',
    [dict(num_layers=2)],
    [dict(variant='paper'), dict(bidirectional=False)],
)
def test_state_space_kernels(tmp_path, model):
  directory, lags = tmp_path / 'model', 300
  tiny_run.make_untrained(directory, tiny_run.make_config(model=model))
  given = dict(LAGS=lags, CHECKPOINT=str(directory), LENGTHS=(16, 50))
  notebook = run('state_space_kernels', tmp_path / 'room', given)
  assert count_pictures(notebook) == PICTURES['state_space_kernels']
  gaps = re.findall(r' (\d\.\de-\d\d)$', shown(notebook, 'recurrence'), re.M)
  assert len(gaps) == 2 and max(map(float, gaps)) < 1e-5
  # The medians, from kernels written out.
  run_ = locost_jax.load(str(directory))
  stacked = run_.params['encoder']['layers']['mixer']['ssm']
  found = re.findall(
      r'^layer +(\d+), tokens (\w+) .*-> +([\d,]+) tokens; '
      r'farthest +([\d,]+)',
      shown(notebook, 'ranges'),
      re.M,
  )
  assert len(found) == run_.config.num_layers * (1 + run_.config.bidirectional)
  for layer, direction, median, farthest in found:
    p = {
        key: np.asarray(value[int(layer) - 1], np.float64)
        for key, value in stacked.items()
    }
    log_z, w, _ = locost.discretise(run_.config, p)
    i = ('before', 'after').index(direction)
    z = np.array(log_z[0]) + 1j * np.array(log_z[1])
    w = np.array(w[0][i]) + 1j * np.array(w[1][i])
    powers = np.exp(z[min(i, len(z) - 1)][..., None] * np.arange(lags))
    K = 2 * (w[..., None] * powers).sum(1).real
    mass = abs(K).cumsum(-1)
    ranges = 1 + (mass < 0.95 * mass[:, -1:]).sum(-1)
    assert abs(float(median.replace(',', '')) - np.median(ranges)) <= 2
    assert abs(float(farthest.replace(',', '')) - ranges.max()) <= 2


def test_a_failing_command_fails_the_notebook(tmp_path):
  book = tmp_path / 'book.txt'
  book.write_text('A book.')
  given = dict(BOOK=str(book), CHECKPOINT='nowhere')
  failed = nbclient.exceptions.CellExecutionError
  with pytest.raises(failed, match='the command ended with 2'):
    run('quickstart', tmp_path / 'room', given)


def test_a_parameter_that_is_not_there():
  with pytest.raises(ValueError, match=r"\['BOOKS'\] are not among"):
    execute.set_parameters(read('quickstart'), dict(BOOKS='x'))


@pytest.mark.parametrize('name', NAMES)
def test_outputs_are_committed_and_clean(name):
  notebook = read(name)
  assert execute.problems(notebook) == []
  assert count_pictures(notebook) == PICTURES[name]
  for cell in notebook.cells:
    if cell.cell_type == 'code':
      assert cell.outputs or cell.id in ('settings', 'style')


def show(text):
  """Returns what replaces the text of a cell's output."""
  return lambda cell: cell.outputs[0].update(text=text)


ERROR = nbformat.v4.new_output('error', ename='E', evalue='')


@pytest.mark.parametrize(
    'change, expected',
    [
        (show('in /home/me/x'), '/home/me/x'),
        (show('x' * execute.LARGEST), 'bytes'),
        (show('a\rb'), repr('\r')),
        (lambda cell: cell.outputs.append(ERROR), 'failed'),
        (lambda cell: cell.update(source='1'), 'of other code'),
        (lambda cell: cell.update(execution_count=1), 'clean kernel'),
    ],
)
def test_what_is_not_clean_is_seen(change, expected):
  notebook = read('quickstart')
  change(next(cell for cell in notebook.cells if cell.id == 'hardware'))
  assert any(expected in line for line in execute.problems(notebook))


def test_four_systems_and_a_page_are_shown():
  check_systems(read('compare_systems'))
  notebook = read('quickstart')
  check_page(shown(notebook, 'page'))
  assert shown(notebook, 'python').count('\n  -> ') == 2


def test_what_is_committed_is_of_the_defaults():
  """Nobody's own files; the commands shown are those of the defaults."""
  for name in NAMES:
    (cell,) = [cell for cell in read(name).cells if cell.id == 'settings']
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(cell.source).body
    }
    paths = 'BOOK', 'CHECKPOINT', 'TRAIN', 'TEST', 'START_FROM', 'DOCUMENT'
    for key in (*paths, *map(str.upper, SYSTEMS)):
      assert values.get(key, '') == '', f'{name}: {key}'
    cell = 'model' if name in ('quickstart', 'state_space_kernels') else 'train'
    steps = f'--config.train.steps={values["STEPS"]} '
    assert steps in shown(read(name), cell)


def test_the_address_of_the_project_has_one_place():
  """setup.cfg: the project is not public yet, so nothing may lead there."""
  setup = configparser.ConfigParser()
  setup.read(ROOT / 'setup.cfg')
  address = setup['metadata']['url'].removeprefix('https://')
  pages = [*ROOT.glob('*.md'), *ROOT.glob('*/*.md'), *execute.NOTEBOOKS]
  pages += [*ROOT.glob('locost_jax/**/*.py'), *ROOT.glob('configs/*.py')]
  assert len(pages) > 100
  for path in pages:
    text = path.read_text()
    assert address not in text, path
    assert 'colab-badge' not in text and 'git clone' not in text, path


def test_links_of_the_notebooks_exist():
  for name in NAMES:
    for cell in read(name).cells:
      for file in re.findall(r'\]\(((?!https?:)[\w./]+)\)', cell.source):
        assert (ROOT / 'colab' / file).exists(), file


def installing():
  sources = {
      next(cell.source for cell in read(name).cells if cell.id == 'install')
      for name in NAMES
  }
  assert len(sources) == 1, 'the notebooks install in different ways'
  return sources.pop()


@pytest.mark.parametrize(
    'jax, hardware, more',
    [
        ('0.10.2', 'gpu', ''),
        ('0.7.2', 'gpu', " 'jax[cuda12]>=0.10'"),
        ('0.7.2', 'tpu', " 'jax[tpu]>=0.10'"),
        ('0.7.2', 'cpu', " 'jax>=0.10'"),
        ('1.0', 'cpu', ''),
    ],
)
def test_colab_installs_a_wheel_for_its_hardware(
    tmp_path, monkeypatch, jax, hardware, more
):
  """A jax that is new enough stays; another is replaced by one of its kind."""
  commands, done = [], types.SimpleNamespace(returncode=0, stdout=())

  def start(command, **_):
    commands.append(command)
    return contextlib.nullcontext(done)

  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', list(sys.path))
  monkeypatch.setitem(sys.modules, 'google.colab', types.ModuleType('colab'))
  monkeypatch.setattr(subprocess, 'Popen', start)
  monkeypatch.setattr(metadata, 'version', lambda name: jax)
  found = '/bin/nvidia-smi' if hardware == 'gpu' else None
  monkeypatch.setattr('shutil.which', lambda name: found)
  devices = ['/dev/accel0'] if hardware == 'tpu' else []
  monkeypatch.setattr('glob.glob', lambda pattern: devices)
  for key in ('PATH', 'XLA_PYTHON_CLIENT_PREALLOCATE'):
    monkeypatch.setenv(key, 'x')
  monkeypatch.delenv('TPU_ACCELERATOR_TYPE', raising=False)
  with pytest.raises(AssertionError, match='upload a wheel'):
    exec(installing(), {})  # pylint: disable=exec-used
  wheel = tmp_path / 'locost_jax-0.1.0-py3-none-any.whl'
  wheel.touch()
  exec(installing(), {})  # pylint: disable=exec-used
  assert commands == [f"pip install -q './{wheel.name}[train,plot]'{more}"]
  assert Path.cwd() == tmp_path
  wheel.unlink()
  (tmp_path / 'configs').mkdir()
  (tmp_path / 'configs' / 'default.py').touch()
  (tmp_path / 'colab').mkdir()
  monkeypatch.chdir(tmp_path / 'colab')
  exec(installing(), {})  # pylint: disable=exec-used
  assert commands[1:] == [f"pip install -q -e '.[train,plot]'{more}"]
  assert Path.cwd() == tmp_path
