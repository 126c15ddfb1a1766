"""Input that cannot be used: one line on stderr, status 2, nothing written."""

import importlib
import math
import os
import re
import shlex
import shutil

import pytest

from bench import __main__ as bench
from locost_jax import convert
from locost_jax import main
from locost_jax import summarize
from locost_jax.data import cache
from locost_jax.data import inspect
from locost_jax.vocabularies import sentencepiece_training
from tests import tiny_run
from tests.config import test_schema
from tests.python import ROOT
from tests.runs import test_main

CONFIG, TRAIN = test_schema.CONFIG, test_schema.TRAIN
MODEL, LONG = '--checkpoint=x', 'x' * 300

# (key, value, part of the error message).
KEYS = [
    ('optim.b2', 1, 'optim.b2=1: expected 0 <= b2 < 1'),
    ('optim.learning_rate', math.nan, 'optim.learning_rate=nan: expected'),
    ('optim.clip', -1, 'optim.clip=-1: expected a finite number, clip >= 0'),
    (
        'optim.name',
        'sgd',
        "optim.name='sgd' must be one of 'adamw', 'adafactor'",
    ),
    ('optim.cooldown_steps', 41, 'expected at most train.steps=40'),
    ('optim.cooldown_steps', math.nan, 'expected a whole number of steps'),
    ('optim.warmup_steps', 2.5, 'expected a whole number of steps'),
    ('optim.groups', "(('*kernel', 0.0),)", "'*kernel' is not a regex: nothin"),
    ('optim.groups', "(('.*', -1.0),)", "('.*', -1.0): expected a finite"),
    ('optim.groups', 'kernel', "'kernel' is not (regex of paths, factor)"),
    ('train.init_map', 'decoder/.*', 'is not (regex of paths, path in the sou'),
    ('train.init_map', "(('decoder/.*', 0.0),)", '0.0): expected a string'),
    ('train.lora.rank', -1, 'expected an integer, 0 <= rank'),
    ('train.lora.paths', '*a', 'lora.paths=*a: expected a regex: nothing'),
    ('model.num_layers', 10**6, 'expected an integer, 1 <= num_layers'),
    ('train.seed', -1, 'expected an integer, 0 <= seed <= 4,294,967,295'),
    ('data.input_buckets', '(0,)', 'data.input_buckets=(0,): expected ascend'),
    ('data.input_buckets', '(32,16)', '(32, 16): expected ascending lengths'),
    ('data.target_buckets', '("a",)', "data.target_buckets=('a',): expected"),
    ('data.max_input_length', 10**12, '2 <= max_input_length <= 100,000,000'),
    ('data.vocabulary_size', 999999999999, '104 <= vocabulary_size <= 1,0'),
    ('data.text_unit', 'page', "expected one of 'file', 'paragraph'"),
    ('data.query_in', 'last', "expected one of '', 'every', 'first'"),
    ('data.pages', 'sections', "expected one of '', 'spatial'"),
    ('decode.start', 'eos', "expected one of '', 'start_id', 'bos'"),
    ('eval.metrics', "('loss','rogue')", "'rogue' is none of"),
    ('eval.metrics', '()', "'auto' is not measured"),
    ('checkpoint.metric', 'bleu', "checkpoint.metric='bleu' is not mea"),
    ('decode.method', 'beam', 'num_beams=1 must be at least 2'),
    ('decode.min_length', 7, 'min_length=7'),
    ('data.targets_start', 'eos', "targets_start=eos: expected one of 'sta"),
    ('data.task', 'nosuch', "config.data.task='nosuch' is none of the tasks"),
    ('train.batch_size', 10**11, '1 <= batch_size <= 1,000,000'),
    ('train.steps', 10**20, '1 <= steps <= 2,147,483,647'),
    ('decode.length_penalty', math.inf, 'expected a finite number'),
    ('decode.forced_first_token', 5000, "below the vocabulary's size, 359"),
    ('decode.forced_last_token', 5000, "below the vocabulary's size, 359"),
    ('checkpoint.keep_best', -1, 'expected an integer, 0 <= keep_best'),
    # Paths that this command cannot use.
    ('data.test_files', 'a.jsonl,s3://b', 's3:// cannot be used here'),
    ('data.vocabulary', 's3://b/v', 's3:// cannot be used here: expected a l'),
    ('train.init_from', 's3://b/c', 'expected a local path or hf://'),
    ('data.cache_dir', 'train.jsonl', 'train.jsonl is not a directory'),
]
FLAGS = [
    ('workdir', 's3://bucket/run', 'expected a local path or gs://'),
    ('workdir', 'train.jsonl', 'train.jsonl is not a directory'),
    ('workdir', 'train.jsonl/run', 'train.jsonl is not a directory'),
    ('workdir', '/proc/run', 'is not writable'),
    ('workdir', LONG, 'longer than 255 bytes'),
    ('program_cache', 'train.jsonl', 'train.jsonl is not a directory'),
    ('profile', '-1', '--profile=-1: expected an integer, 0 <= profile'),
    ('peak_tflops', 'nan', '--peak_tflops=nan: expected a finite number'),
]

# Name of a config -> its own line.
ODD = {
    'broken': 'oops',
    'extra': 'c = default.get_config(); c.train.stesp = 3',
    'empty': 'c = ConfigDict()',
    'exit': 'import sys; sys.exit(0)',
    'keys': "c.phases = (('a', {1: 2}),)",
    'names': 'c.phases = ((5, {}),)',
    'long': "c.phases = (('a' * 81, {}),)",
    'frozen': 'from ml_collections import FrozenConfigDict as F; return F(c)',
    'circle': 'c.train.self = c.train',
    'one': 'c[1] = 2',
    'words': "raise ValueError('x' * 10**5)",
    'number': 'c.gsg = 5',
    'none': 'c.mesh = None',
}
PHASES = "--config.phases=(('a', {'mesh.fsdp': 0}),)"
OTHER_COMMANDS = [
    (bench, ['encode', '--seconds=nan'], '--seconds=nan: expected a finite'),
    (bench, ['encode', '--memory_limit=-1'], 'memory_limit > 0'),
    (bench, ['encode', '--output=gs://b/c'], 'gs:// cannot be used here'),
    (bench, ['train', '--config.optim.b1=2'], 'optim.b1=2: expected 0 <= b1 <'),
    (summarize, [MODEL, '--memory_limit=nan', 'a'], 'a finite number, memory_'),
    (summarize, [MODEL, '--temperature=nan', 'a'], '--temperature=nan: expect'),
    (summarize, ['--checkpoint=s3://b/c', 'a'], 'path or hf:// or gs://\n'),
    (summarize, [MODEL, '--report=s3://a.html', 'a'], 's3:// cannot be used'),
    (summarize, [MODEL, 's3://b/a.txt'], 'FILE=s3://b/a.txt: s3:// cannot be '),
    (summarize, [MODEL, 'az://b/a'], 'used here: expected a local path or gs:'),
    (summarize, [MODEL, '--prefix=\udcff', 'a'], 'string without lone surr'),
    (summarize, [MODEL, '--output=no/x', 'one.jsonl'], 'x: no directory no\n'),
    (summarize, [MODEL, '--output=no/', 'one.jsonl'], '/: no directory no\n'),
    (summarize, [MODEL, f'--output={LONG}.txt', 'one.jsonl'], 'name too long'),
    (summarize, [MODEL, f'--report={LONG}.html', 'one.jsonl'], 'name too long'),
    (convert, ['--source=s3://b', '--target=x'], '--source=s3://b: s3:// can'),
    (convert, ['--source=x', '--target=gs://b'], '--target=gs://b: gs:// can'),
    (inspect, ['--config.data.train_files=s3://b/*'], 'train_files=s3://b/*: '),
    (inspect, ['--config.data.max_input_length=1000000000000'], '<= 100,000'),
    (cache, ['--output=gs://b/caches'], '--output=gs://b/caches: gs:// cann'),
    (main, [CONFIG, '--preflight', '--workdir=s3://b/run'], 's3:// cannot be'),
    (main, [CONFIG, '--workdir', '--dry_run'], '--dry_run comes next; expecte'),
    (main, ['--config=empty.py'], 'empty.py: get_config() returned a config '),
    (main, ['--config=exit.py', *TRAIN[1:]], 'line 5: SystemExit: 0'),
    (main, ['--config=keys.py', *TRAIN[1:]], 'a: 1: expected a key such as'),
    (main, ['--config=names.py', *TRAIN[1:]], '5 cannot name a ph'),
    (main, ['--config=long.py', *TRAIN[1:]], "a' cannot name a phase: expect"),
    (main, ['--config=frozen.py', *TRAIN[1:]], 'FrozenConfigDict, expected a '),
    (main, ['--config=circle.py', *TRAIN[1:]], 'RecursionError: maximum'),
    (main, ['--config=one.py', *TRAIN[1:]], "TypeError: '<' not supported"),
    (main, ['--config=words.py', *TRAIN[1:]], 'xx ... xx'),
    (main, ['--config=number.py', *TRAIN[1:]], 'gsg=5: expected a section'),
    (main, ['--config=none.py', *TRAIN[1:]], 'mesh=None: expected a section'),
    (main, [*TRAIN[:2], PHASES], 'mesh.fsdp=0: expected an integer, 1 <= f'),
]
STEPS = '--config.train.steps=40'
FLAGS += [(f'config.{key}', *rest) for key, *rest in KEYS]
REFUSED = [
    (main, [*TRAIN, STEPS, f'--{flag}={value}'], expected)
    for flag, value, expected in FLAGS
]
# Command, words | part of the error line.
WORDS = """
main --config.data.task=x | : expected --config=FILE, such as conf
main --config=configs/fientune.py | did you mean configs/finetune.py
main --config=quikstart | ; did you mean configs/quickstart.py or c
main --train.steps=2 | ; did you mean --config.train.steps?; --help lists them
main --train_files=x | did you mean --config.data.train_files?
main --batch_size=2 | --config.train.batch_size or --config.eval.batch_size?
main CONFIG --config.train.learning_rate=1 | mean config.optim.learning_rate?
main CONFIG --config.optim.lr=1 | did you mean config.optim.learning_rate?
main CONFIG --config.selector.learning_rate=1 | no selector for \
config.selector.learning_rate; did you mean config.optim.learning_rate?
main CONFIG --config.train.epochs=1 | did you mean config.train.steps?; an \
epoch is rows / train.batch_size steps
main --flagfile=x | error: --flagfile is not a flag; --help lists them
main --help=config.optmi | did you mean config.optim?
main --help=flags | expected --help, --help=config or --help=config.SECTION
summarize --help=config | this command has no config; expected --help
summarize --config.data.task=2 | is not a flag; --help lists them
summarize --num_beam=2 | did you mean --num_beams?
summarize --length=2 | did you mean --max_length?
summarize --model=x | did you mean --checkpoint?
summarize -flagfile x | error: --flagfile is not a flag; --help lists them
summarize one.jsonl | or builtin:documentation, a small example
summarize --checkpoint=RUN | no FILE given
summarize --checkpoint=RUN nothing | nothing: a directory with nothing
summarize --checkpoint=RUN empty.txt | empty.txt: an empty document
summarize --checkpoint=RUN text.jsonl | jsonl:1: no field 'document'
summarize --checkpoint=nowhere one.jsonl | nowhere: no such directory
summarize --checkpoint=. one.jsonl | config.json
summarize --checkpoint=RUN/../small one.jsonl | vocabulary has 359 tokens, its m
summarize --checkpoint=nowhere missing.txt | missing.txt: no such file
summarize --checkpoint=nowhere one.jsonl --top_p=1.5 | --top_p=1.5: expected 0 <
summarize --checkpoint=nowhere one.jsonl --num_beams=2 --top_k=3 | must be 1 with
ONE --min_length=7 | --min_length=7 must lie
ONE --method=beam | --num_beams=1 must be
ONE --output=nothing | is a directory; expected the name of a file
ONE --parts=best | parts
ONE --part_length=64 | --part_length needs --parts
ONE --summary_length=64 | --summary_length needs --parts
ONE --parts=join --part_length=4 | 8
ONE --parts=join --max_input_length=64 | --max_input_length and
ONE --parts=join --report=page.html | a page shows what
ONE --parts=hierarchical --part_length=16 | expected at least 41
ONE --reference_field=summary | expected --format=json
ONE --format=json --reference_field=gone | field 'gone'
summarize --checkpoint=x missing.txt --report=x.txt | --report=x.txt: expected a \
name that ends in .html or .htm
summarize --checkpoint=x missing.txt --report=x.html.gz | =x.html.gz: expected a \
name that ends in
summarize --checkpoint=x missing.txt --report=/dev/null | =/dev/null: expected a \
name that ends in
ONE --report=folder.html | folder.html: is a directory; expected the name of a f
ONE --report=./ | --report=./: is a directory; expected the name of a file
ONE --output=page.txt --report=./page.html | is the file of --output
ONE --output=a.xlsx | --output=a.xlsx: expected a name that ends in .txt, .json, \
.jsonl or .csv
ONE --output=a | --output=a: expected a name that ends in .txt
ONE --output=a.csv --format=json | expected one of them; the ending
ONE --output=a.txt --reference_field=s | --output=FILE.jsonl
score | --predictions=FILE is missing
score a.jsonl | a.jsonl: cannot be read: No
score . | .: no config.json of a run in it; expected a file of predictions or a W
score rows.jsonl --protocol=google2 | --protocol=google2: no such protocol; did \
you mean google? expected one of locost, google, pagesum
score rows.jsonl --metrics=answer | --metrics=answer: no such metric; did you \
mean answers? expected some of rouge, answers
score rows.jsonl --metrics=rouge --model=x | these need one: none
score pipe | pipe: is a named pipe, expected a regular file
score rows.jsonl /dev/zero | /dev/zero: is a device, expected a regular file
score rows.jsonl b.jsonl | b.jsonl: cannot be read
score a b c | 'c': expected flags only
score gs://a | --predictions=gs://a: gs:// cannot be used here
convert a | --target=DIR is missing
convert a b | a: no such directory
convert --target=b a | a: no such directory
data.inspect a.jsonl b.jsonl | a.jsonl: no such file
data.inspect rows.jsonl b.jsonl | b.jsonl: no such file
data.inspect a.jsonl --config.data.train_files=b | expected flags only
main | --config=FILE is missing
main --config=nothing.py | --config=nothing.py: no such file
main --config= | --config=: no such file
main --config=broken.py | broken.py: line 5: NameError: name 'oops'
main --config=extra.py | extra.py: line 5: AttributeError
main CONFIG | nothing to train on
main CONFIG --config.train.steps=many | expected an integer
main CONFIG --config.gsg.ratio=0.3 | config.gsg.ratio
main CONFIG --peak_tflops=much | expected a number
main CONFIG surplus | 'surplus': expected flags only
main CONFIG --by_length | --by_length needs --evaluate
main CONFIG --config.phases="(('a', {'train.stesp': 3}),)" | mean train.steps?
main CONFIG --config.phases="(('a', {'train.steps': 'x'}),)" | \
config.train.steps='x': expected int
main CONFIG --config.phases="(('a', {}), ('a', {}))" | 'a' cannot name
main CONFIG --config.optim.warmup=100 | has no key config.optim.warmup: it is now \
config.optim.flat_steps
main CONFIG:simcas --config.train.objective=likelihood | \
config.model.select='ppo': the likelihood trains no selector, whose choices \
have no gradient: expected config.train.objective='simcas', or
main CONFIG:simcas --config.model.select=none | 'none' does not use the \
selector: expected config.model.name='simcas' with config.model.select='ppo'
main CONFIG:bart --config.train.objective=simcas | \
config.model.name='bart' has no selector
main --config=configs/pretrain_c4.py:mt5 | expected one of tiny, small, base,
main --config=configs/finetune_arxiv.py:mt5 | expected one of locost, longt5, t
main --config=configs/pagesum.py:mt5 | expected one of arxiv, arxiv_discourse,
main --config=configs/simcas.py:mt5 | expected one of arxiv, pubmed, govreport,
main --config=configs/finetune.py:mt5 | 'mt5': expected one of locost, longt5,
main CONFIG --config.train.accumulate=3 | accumulate=3: expected a divisor of
main CONFIG --config.train.patience=3 --config.train.eval_every=0 | \
patience=3 counts evaluations since the best one: expected train.eval_every abo
main CONFIG --config.train.patience=3 --config.checkpoint.keep_best=0 | \
expected checkpoint.keep_best above 0
main CONFIG --config.optim.name=adamw --config.optim.scale_by_parameter=False | \
scale_by_parameter=False: has no effect with optim.name='adamw'
main CONFIG --config.optim.schedule=linear | optim.schedule='linear' must be one \
of 'constant', 'inverse_sqrt', or a function
main CONFIG --config.optim.flat_steps=9 | optim.flat_steps=9.0: has no effect with \
optim.schedule='constant'
main CONFIG --config.optim.groups="(('encodr/.*', 0.1),)" | 'encodr/.*' matches \
no parameter
main CONFIG --config.optim.groups="(('.*', 0.0),)" | every parameter is frozen
main CONFIG --config.mesh.tensor=2 --config.mesh.data=1 | \
mesh.tensor=2 x mesh.sequence=1: expected at most
main CONFIG --config.mesh.data=4096 | mesh.data=4096 x mesh.fsdp=1
main CONFIG --config.mesh.data=0 | mesh.data=0
main --dry_run GOOD --config.data.vocabulary=byte \
--config.data.target_field=title | no field 'title'
main GOOD --config.data.vocabulary=byte --config.decode.start=bos | \
config.decode.start='bos': the vocabulary
main CONFIG --evaluate | no such directory; train first
main CONFIG --evaluate --workdir=. | no config.json
main --evaluate --workdir=other | --workdir=other: no config.json of a run in it; \
expected
main --evaluate --workdir=RUN --config.decode.beams=2 | /config.json has no key \
config.decode.beams
main --workdir=RUN --config.train.steps=5 | --config.train.steps is a key of a \
config: expected --config=FILE
main --workdir=RUN --noconfig.eval.baselines | noconfig.eval.baselines
main GOOD --config.train.init_from=nowhere | init_from=nowhere: no such
main GOOD --config.data.vocabulary=RUN/../other.model \
--config.train.init_from=RUN | has another vocabulary
main GOOD --config.train.init_from=RUN | expected
main GOOD --config.data.vocabulary=byte --config.model.vocab_size=300 | \
vocab_size=300
data.cache --task=python_docs_summary | --output=DIR is missing
data.cache --task=python_docs --output=x | did you mean python_docs_gsg?
data.cache --output=x --processes=0 | processes
main GOOD --config.data.vocabulary=byte --workdir=odd | odd/cache: File exists
READY --config.data.train_files=missing.jsonl | missing.jsonl
READY --config.mesh.fsdp=3 | mesh.fsdp=3
READY --dry_run | --dry_run and --preflight: expected one of them
READY --expect_hosts=4 | --expect_hosts=4: JAX has 1
READY --expect_vocabulary=32100 | --expect_vocabulary=32100: found 359
READY --expect_files=1024 | --expect_files=1024: found 1
READY --nopreflight --expect_hosts=4 | need --preflight
main CONFIG --topology=v5e:4x4 | --topology=v5e:4x4 needs --dry_run
main CONFIG --dry_run --topology=v5e-17 | --topology=v5e-17: expected \
an accelerator type
main CONFIG --dry_run --topology=h900:1x8 | expected a TPU slice like v5e:4x4 (v2
main CONFIG --dry_run --topology=h100:8 | or GPUs like h100:1x8, hosts x GPUs
main CONFIG --dry_run --topology=h100:0x8 | or GPUs like h100:1x8, hosts x GPUs
main CONFIG --dry_run --topology=h100:1x8x1 | GPUs like h100:1x8, hosts x GPUs
""".strip('\n').splitlines()
SHORT = {
    'READY': 'main --preflight GOOD --config.data.vocabulary=byte',
    'GOOD': 'CONFIG --config.data.train_files=train.jsonl',
    'CONFIG': CONFIG,
    'ONE': 'summarize --checkpoint=RUN one.jsonl',
}


def parse(row, run):
  """Returns (command, words, expected) of a row of WORDS."""
  words, expected = row.split(' | ')
  for name, text in SHORT.items():
    words = words.replace(name, text)
  command, *words = shlex.split(words.replace('RUN', str(run)))
  return importlib.import_module(f'locost_jax.{command}'), words, expected


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """A finished run; next to it another vocabulary, and a too small model."""
  directory = tmp_path_factory.mktemp('main') / 'finished'
  tiny_run.make(directory)
  texts = map(test_main.story, range(40))
  sentencepiece_training.train(texts, directory.parent / 'other.model', 230)
  small = shutil.copytree(directory, directory.parent / 'small') / 'config.json'
  small.write_text(small.read_text().replace(' 359', ' 100'))
  return directory


@pytest.fixture
def place(tmp_path, monkeypatch):
  """The working directory."""
  monkeypatch.chdir(tmp_path)
  test_main.write_rows(tmp_path / 'train.jsonl', test_main.pairs(0, 20))
  (tmp_path / 'rows.jsonl').write_text('{"prediction": "a", "reference": "a"}')
  (tmp_path / 'one.jsonl').write_text('{"document": "A text."}')
  (tmp_path / 'text.jsonl').write_text('{"text": "x"}')
  (tmp_path / 'empty.txt').write_text(' \n')
  for name in 'nothing', 'folder.html':
    (tmp_path / name).mkdir()
  os.symlink('page.html', tmp_path / 'page.txt')
  os.mkfifo(tmp_path / 'pipe')
  (tmp_path / 'odd').mkdir()
  (tmp_path / 'odd' / 'cache').touch()
  (tmp_path / 'configs').symlink_to(ROOT / 'configs')
  for name, line in ODD.items():
    (tmp_path / f'{name}.py').write_text(
        'from ml_collections import ConfigDict\nfrom configs import default\n'
        'def get_config():\n  c = default.get_config().unlock()\n'
        f'  {line}\n  return c\n'
    )
  return tmp_path


@pytest.mark.parametrize('case', [*REFUSED, *OTHER_COMMANDS, *WORDS])
def test_one_line_and_nothing_is_written(
    run_command, guard, place, finished, case
):
  notes = r'training a vocab|tokenising|WARNING:' if 'GOOD' in case else '$^'
  if isinstance(case, str):
    case = parse(case, finished)
  command, arguments, expected = case
  before = sorted(place.rglob('*'))
  status, out, err = run_command(command, *arguments)
  err = [line for line in err.splitlines() if not re.match(notes, line)]
  assert (status, len(err)) == (2, 1), err
  if '--preflight' in arguments:  # it says what was right before
    assert 'ready' not in out
  else:
    assert out == ''
  assert err[0].startswith('error: ') and expected in f'{err[0]}\n'
  assert sorted(place.rglob('*')) == before
