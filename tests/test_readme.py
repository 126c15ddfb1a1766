"""Every command of README and docs: its flags exist, and (slow) it runs.

A command must have a row in RUNS, which says how it is made small: a page
cannot gain one that is not run. Files that a user has are stood in for by
small ones; what needs a network or an extra must end with a line that says so.
"""

import importlib
import os
from pathlib import Path
import re
import shlex
import subprocess
import sys
from typing import NamedTuple

from absl import flags
import numpy as np
import pytest

from locost_jax.config import commands
from locost_jax.runs import resume
from tests import products
from tests.data.rows import paged
from tests.data.rows import write_jsonl
from tests.documents import made_pdf
from tests.summarizing.test_documents import make_book
from tests.summarizing.test_documents import make_page

ROOT = Path(__file__).parent.parent
# In this order: later pages read what the commands of earlier ones wrote.
PAGES = {
    f'{name}.md': (ROOT / f'{name}.md').read_text()
    for name in (
        'README docs/training docs/evaluation docs/data docs/summarizing '
        'docs/models docs/weights docs/many_devices docs/reliability '
        'docs/results docs/architecture CONTRIBUTING'
    ).split()
}
README = PAGES['README.md']

MODEL = (
    'model.d_model=16 model.d_state=4 model.d_ff=16 model.d_kv=4 '
    'model.num_heads=4 model.num_layers=1 model.num_decoder_layers=1'
).split()
DATA = (
    'data.vocabulary=byte data.check_sizes=False data.max_input_length=64 '
    'data.max_target_length=16'
).split()
TRAIN = (
    'data.input_buckets=64 data.target_buckets=16 train.steps=2 '
    'train.batch_size=8 eval.batch_size=8 eval.examples=8 decode.max_length=16'
).split()


def small(*keys):
  return ' '.join(f'--config.{key}' for key in keys)


class Run(NamedTuple):
  """How a command is run small.

  pattern: regex of the command.
  more: flags behind it.
  less: regex of what is taken out of it.
  makes: what is there afterwards, a pattern of paths, \\1 the group of
    `pattern`; '': words on stdout.
  says: regex of the one line on stderr where an extra or a network is missing.
  """

  pattern: str
  more: str = ''
  less: str = '$^'
  makes: str = ''
  says: str = ''


TINY = small(*MODEL, *DATA, *TRAIN)
TINY_PAGES = small(
    *(key for key in MODEL if not re.match('model.d_(state|kv)=', key)),
    'model.decoder_d_ff=16',
    'data.page_length=64',
    *DATA,
    *TRAIN,
)
BENCH = small(*MODEL) + ' --repeats=1 --seconds=1 '
PEERS = r' --(against|memory_limit|repeats|seconds|lengths)\S*'
RUNS = (
    Run(r'.*papers\.score .*--model=hf://.*', says='(metrics|hub|network)'),
    Run(r'.*locost_jax\.score .*'),
    Run(r'.*summarize .*--query=.*', '--max_length=4 --ask_anyway'),
    Run(
        r'.*summarize .*--checkpoint=hf://.*',
        less=r'^pip .*?&& ',
        says='(hub|network)',
    ),
    Run(r'pip install .*builtin:documentation -', less=r'^pip .*?&& '),
    Run(
        r'.*summarize .*--parts=.*--output=(\S+) .*',
        '--max_length=4 --part_length=64',
        makes=r'\1',
    ),
    Run(r'.*papers\.plot .*--output=(\S+)', '--overwrite', makes=r'\1'),
    Run(r'.*bench encode .*', BENCH + '--lengths=64,128', PEERS),
    Run(r'.*papers\.score .*', '--overwrite', makes='FILE.json'),
    Run(r'.*papers\.prepare'),
    Run(r'.*papers\.prepare .*', makes='corpora/qmsum/train.jsonl*'),
    Run(
        r'.*data\.inspect --task=qmsum',
        small('data.vocabulary=byte', 'data.check_sizes=False'),
    ),
    Run(r'.*data\.inspect .*', small('data.vocabulary=byte')),
    Run(r'.*data\.cache .*', small(*DATA), makes='caches/*-train-*/stats.json'),
    Run(
        r'.*summarize .*--(?:output|report)=(\S+) .*',
        '--max_length=4',
        makes=r'\1',
    ),
    Run(r'.*summarize .*', '--max_length=4'),
    Run(
        r'.*convert --source=hf://google/.*',
        makes='runs/longt5/config.json',
        says='huggingface',
    ),
    Run(r'.*convert --source=runs.*', makes='exported/model.safetensors'),
    Run(r'.*convert .*', makes='runs/imported/checkpoints/0'),
    Run(r'.*main .*--topology=.*', TINY, says='tpu-aot'),
    Run(r'.*main .*configs/quickstart\.py --.*', TINY),
    Run(
        r'.*main .*configs/quickstart\.py',
        TINY,
        r'^python3 .*&& ',
        'runs/quickstart/finetune/checkpoints/2',
    ),
    Run(
        r'.*main .*configs/(pretrain_c4|finetune_arxiv|finetune_booksum_book)'
        r'\.py.*',
        f'{TINY} {small("train.init_from=")}',
        makes=r'runs/\1/checkpoints/2',
    ),
    Run(
        r'.*main .*--evaluate',
        TINY,
        makes='runs/finetune/predictions/*-test-2.jsonl',
    ),
    Run(
        r'.*main .*configs/finetune\.py:pagesum .*--workdir=(\S+)',
        TINY_PAGES,
        makes=r'\1/checkpoints/2',
    ),
    Run(
        r'.*main .*configs/finetune\.py:simcas .*',
        TINY_PAGES,
        makes='runs/finetune-simcas/select/checkpoints/2',
    ),
    Run(r'.*main .*--workdir=(\S+)', TINY, makes=r'\1/checkpoints/2'),
    Run(
        r'.*main .*configs/(pretrain|finetune)\.py.*',
        TINY,
        makes=r'runs/\1/checkpoints/2',
    ),
)


def sections():
  """{(page, heading): its shell commands}, in order."""
  found = {}
  for page, text in PAGES.items():
    fence = heading = ''
    for line in re.sub(r'\s*\\\n\s*', ' ', text).splitlines():
      if line.startswith('```'):
        fence = '' if fence else line[3:] or 'text'
      elif fence in ('bash', 'sh', 'shell', 'console'):
        if command := re.sub(r'\s+#\s.*', '', line):
          found.setdefault((page, heading), []).append(command)
      elif not fence and (title := re.match('#+ (.*)', line)):
        heading = title[1]
  return found


SECTIONS = sections()
TESTS = next(line for line in SECTIONS['README.md', 'More'] if 'pytest' in line)
EVERY = sorted({*sum(SECTIONS.values(), [])} - {TESTS})
# Of contributors: the tests themselves.
PYTEST = [command for command in EVERY if ' pytest ' in command]
OURS = [command for command in EVERY if command not in PYTEST]
INSIDE = [
    command
    for text in PAGES.values()
    for command in re.findall(r'`(python -m (?:locost_jax|papers)[^`]+)`', text)
    if command.endswith(('.py', "'")) or ' --' in command
]


def run_of(command):
  """The first row of RUNS for a command."""
  for run in RUNS:
    if re.fullmatch(run.pattern, command):
      return run
  raise AssertionError(f'a page has {command!r}: how is it run here?')


def test_there_is_something_to_run():
  assert len(SECTIONS) >= 20 and len(INSIDE) > 8 and len(PYTEST) == 3
  assert sum(map(len, SECTIONS.values())) > 40
  for command in EVERY:
    assert 'python' in command, command  # not half of a longer line


def test_all_pages_are_read():
  docs = {f'docs/{path.name}' for path in (ROOT / 'docs').glob('*.md')}
  made = {'docs/index.md', 'docs/api.md'}  # of the manual
  assert set(PAGES) == {'README.md', 'CONTRIBUTING.md', *docs - made}


def test_each_row_has_a_command():
  assert {run_of(command) for command in {*INSIDE, *OURS}} == set(RUNS)


@pytest.mark.parametrize('page', [*PAGES, 'papers/README.md'])
def test_files_and_links_exist(page):
  """Paths that are not called new, relative links, headings they name."""
  text, folder = (ROOT / page).read_text(), (ROOT / page).parent
  for path in re.findall(
      r'(?<!A new file, )`((?:locost_jax|papers|configs|tests|launch|colab|docs)/'
      r'[\w./]+)[`:]',
      text,
  ):
    assert (ROOT / path).exists(), path
  for link in re.findall(r'\]\((?!https?:)([^)]+)\)', text):
    file, _, anchor = link.partition('#')
    target = folder / file if file else ROOT / page
    assert target.exists(), link
    if anchor:
      headings = re.findall(r'^#+ (.*)', target.read_text(), re.M)
      slugs = [
          re.sub(r'[^\w -]', '', h).lower().replace(' ', '-') for h in headings
      ]
      assert anchor in slugs, link


@pytest.mark.parametrize('command', PYTEST)
def test_files_of_pytest_commands_exist(command):
  words = shlex.split(command)
  assert words[:3] == ['python', '-m', 'pytest']
  assert all((ROOT / word).exists() for word in words if word.endswith('.py'))
  assert '-k' not in words or words[-1] in (ROOT / words[-3]).read_text()


@pytest.mark.parametrize('command', sorted({*INSIDE, *OURS}))
def test_flags_exist(monkeypatch, command):
  """Of commands in the text and in tables, too."""
  monkeypatch.chdir(ROOT)
  monkeypatch.setattr(  # WORKDIRs that the reader has
      resume,
      'find_settings',
      lambda path, _: (commands.load_config('configs/finetune.py'), path),
  )
  run = run_of(command)
  words = shlex.split(f'{command} {run.more}')
  assert words[-1:]  # quotes are closed
  words = words[len(words) - words[::-1].index('-m') :]
  module = importlib.import_module(
      words[0] + '.__main__' * (words[0] == 'bench')
  )
  values = flags.FlagValues()
  values.set_gnu_getopt(True)
  module.define_flags(values, words)
  commands.parse_flags(values, words)


def test_ci_runs_the_tests_command():
  """.ci/run takes the README's line; that it takes one is seen here."""
  script = (ROOT / '.ci/run').read_text()
  pattern = re.search(r"grep -E '(.*)' README\.md", script)[1]
  assert re.findall(pattern + '.*', README, re.M) == [TESTS]


# --- Really ------------------------------------------------------------------


@pytest.fixture(scope='module')
def house(tmp_path_factory):
  """A directory with the files that a reader of the pages has."""
  home = tmp_path_factory.mktemp('house')
  (home / 'configs').symlink_to(ROOT / 'configs')
  rows = []
  for i in range(24):
    parts = [f'House {n} of street {i} is {n} years old.' for n in range(12)]
    rows.append(paged(i, parts, text=' '.join(parts)))
  texts = [row['text'] for row in rows]
  for name in (
      'train.jsonl test.jsonl part-1.jsonl meetings.jsonl validation.jsonl '
      'papers.jsonl texts-1.jsonl.gz '
      'corpora/arxiv/train.jsonl corpora/arxiv/validation.jsonl '
      'corpora/booksum_book/train.jsonl corpora/booksum_book/validation.jsonl '
      'corpora/c4_gsg/c4-train.00000-of-00001.json.gz '
      'corpora/c4_gsg/c4-validation.00000-of-00001.json.gz'
  ).split():
    write_jsonl(home / name, rows)
  meetings = [
      dict(
          meeting_transcripts=[dict(speaker='PM', content=text)],
          general_query_list=[dict(query='Summarize.', answer='Houses.')],
          specific_query_list=[],
      )
      for text in texts
  ]
  for split in 'train', 'val', 'test':
    write_jsonl(home / f'QMSum/data/ALL/jsonl/{split}.jsonl', meetings)
  first = lambda text, words: ' '.join(text.split()[:words])
  for name, words in ('predictions', 40), ('others', 9), ('a', 3), ('b', 2):
    rows = [
        dict(id=i, prediction=first(text, words), reference=text[:40])
        for i, text in enumerate(texts)
    ]
    write_jsonl(home / f'{name}.jsonl', rows)
  (home / 'report.txt').write_text(texts[0])
  (home / 'books').mkdir()
  (home / 'books' / 'one.txt').write_text(texts[1])
  make_book(home / 'book.epub', {'a.xhtml': make_page(texts[:2])}, ['a.xhtml'])
  (home / 'book.pdf').write_bytes(made_pdf.make([[texts[0]], [texts[1]]]))
  return home


@pytest.fixture(scope='module')
def ran():
  """The commands that were run."""
  return set()


SOAK = 'Many devices', 'Do PageSum and SimCAS learn what to read?'
PARTS = [[x for x in SECTIONS if (x[1] in SOAK) == soak] for soak in (0, 1)]


@products.few('page, heading', *PARTS, pytest.mark.slow)
def test_section_runs(house, ran, page, heading):
  """In the order of PAGES: later sections read what earlier ones wrote.

  A command that several sections have runs once.
  """
  for command in SECTIONS[page, heading]:
    if command not in OURS or command in ran:
      continue
    ran.add(command)
    run = run_of(command)
    line = f'{re.sub(run.less, "", command)} {run.more}'
    devices = 8 if page == 'docs/many_devices.md' else 1
    done = subprocess.run(
        ['bash', '-euo', 'pipefail', '-c', line],
        cwd=house,
        text=True,
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env=dict(
            os.environ,
            PYTHONPATH=str(ROOT),
            HF_HUB_OFFLINE='1',
            HOME=str(house),
            LOCOST_JAX_CACHE=str(house / 'programs'),  # as users keep them
            JAX_PLATFORMS='cpu',
            PATH=f'{Path(sys.executable).parent}:{os.environ["PATH"]}',
            XLA_FLAGS=os.environ['XLA_FLAGS'] + ' --xla_force_host_'
            f'platform_device_count={devices}',
        ),
    )
    if run.says and done.returncode:
      assert done.returncode == 2, f'{line}\n{done.stderr}'
      last = done.stderr.splitlines()[-1]
      assert re.fullmatch(f'error: .*{run.says}.*', last), done.stderr
    else:
      assert done.returncode == 0, f'{line}\n{done.stderr}'
      made = re.fullmatch(run.pattern, command).expand(run.makes)
      assert list(house.glob(made)) if made else done.stdout, line


@pytest.mark.slow
@pytest.mark.parametrize(
    'page', ['README.md', 'docs/summarizing.md', 'docs/weights.md']
)
def test_python_runs(house, monkeypatch, capsys, page):
  snippets = re.findall(r'^```python\n(.*?)^```', PAGES[page], re.M | re.DOTALL)
  monkeypatch.chdir(house)
  names = {'tokens': np.full((1, 64), 7)}
  for block in snippets:
    exec(block, names)  # pylint: disable=exec-used
  if page == 'README.md':
    assert names['s'].encode(names['tokens']).shape == (1, 64, 16)
  elif page == 'docs/summarizing.md':
    assert names['states'].shape[-1] == 16 and names['logits'].ndim == 3
    assert [type(text) for text in names['summaries']] == [str]
  else:
    assert 'd_model=16' in capsys.readouterr().out
