"""The examples in CONTRIBUTING.md work in a copy of the package.

tests/runs/test_by_length.py trains with the config of one's own.
"""

import re
import shutil
import textwrap

import pytest

from tests import python
from tests.python import ROOT

PAGE = (ROOT / 'CONTRIBUTING.md').read_text()


def find_examples():
  """Returns {heading: Python code}."""
  return {
      part.splitlines()[0]: block
      for part in re.split(r'^### ', PAGE, flags=re.M)[1:]
      for block in re.findall(r'^```python\n(.*?)^```', part, re.M | re.DOTALL)
  }


EXAMPLES = find_examples()
OWN = 'A corpus, a schedule and a metric of your own'


def insert(path, mark, text):
  """Inserts text before the line that begins with `mark`."""
  source = path.read_text()
  assert source.count(f'\n{mark}') == 1, (path, mark)
  path.write_text(source.replace(f'\n{mark}', f'\n{text}{mark}'))


def row_of(heading, table):
  """Returns the row that an example adds to `table`, from its text."""
  part = PAGE.split(f'### {heading}\n')[1].split('\n### ')[0]
  return re.search(rf'Add\s+`([^`]+)`\s+to\s+`{table}`', part)[1]


@pytest.fixture(scope='module')
def copy(tmp_path_factory):
  """A copy of the package that contains all the examples."""
  home = tmp_path_factory.mktemp('copy')
  for folder in 'locost_jax', 'configs':
    shutil.copytree(ROOT / folder, home / folder)
  package = home / 'locost_jax'

  metrics = package / 'evaluation'
  (metrics / 'metrics' / 'line_ratio.py').write_text(EXAMPLES['A metric'])
  table = metrics / 'metric_table.py'
  insert(
      table,
      'from locost_jax.evaluation.metrics import metric\n',
      'from locost_jax.evaluation.metrics import line_ratio\n',
  )
  insert(table, '    )\n}', f'        {row_of("A metric", "METRICS")},\n')

  (home / 'mails.py').write_text(EXAMPLES[OWN])
  heading = 'An initialisation of the state-space model'
  ssm = package / 'ops' / 'ssm.py'
  insert(ssm, '# model.initialisation ->', EXAMPLES[heading] + '\n\n')
  begin, row = 'INITIALISATIONS = {', row_of(heading, 'INITIALISATIONS')
  ssm.write_text(ssm.read_text().replace(begin, f'{begin}{row}, '))

  corpora = package / 'data' / 'corpora.py'
  insert(corpora, "    'xsum': Entry(", EXAMPLES['A corpus'])

  models = package / 'models'
  heading = 'A token mixer'
  (models / 'difference.py').write_text(EXAMPLES[heading])
  insert(
      models / '__init__.py',
      'from locost_jax.models import encoder_decoder\n',
      'from locost_jax.models import difference\n',
  )
  row = f'    {row_of(heading, "MODELS")},\n'
  insert(models / '__init__.py', "    't5': (", row)
  return home


PROGRAMS = {
    'A metric': """
        from locost_jax.evaluation import metric_table
        from locost_jax.evaluation.metrics import metric
        chosen = metric_table.select(['line_ratio'])
        written = metric.score(
            chosen, ['a\\nb', 'c'], ['a', ['d\\ne\\nf', 'g']])
        assert written == {'line_ratio': 3 / 4}, written
        metric_table.check(['line_ratio'], 'line_ratio')
        assert metric_table.columns(())[-1].title == 'lines'
        assert metric_table.OF_SCORE['line_ratio'] == 'line_ratio'
        """,
    OWN: """
        import mailbox
        from locost_jax.config import commands
        from locost_jax.data import corpus
        from locost_jax.training import optim
        box = mailbox.mbox('mails.mbox')
        box.add('Subject: Mail\\n\\nIt is old.')
        box.flush()
        config = commands.load_config('mails.py')
        made = corpus.corpus(config).made_of('train')
        assert made == corpus.corpus(config).made_of('train')
        box.add('Subject: One more\\n\\nIt is new.')
        box.flush()
        again = commands.load_config('mails.py')
        assert made != corpus.corpus(again).made_of('train')
        config.optim.learning_rate = 2.0
        rate = optim.make_schedule(config.optim, 10)
        assert abs(float(rate(5)) - 1) < 1e-6, rate(5)
        assert float(rate(0)) == 2 and float(rate(10)) == 0
        """,
    'An initialisation of the state-space model': """
        import jax
        import numpy as np
        from configs import default
        from locost_jax import models
        from locost_jax.ops import ssm
        imag = ssm.init_A('s4d-inv', 1)(None, (1, 1, 2))[0, 0]
        np.testing.assert_allclose(imag, [12 / np.pi, 4 / 3 / np.pi], 1e-6)
        config = default.locost()
        config.vocab_size, config.initialisation = 100, 's4d-inv'
        models.build(config)
        """,
    'A corpus': """
        from configs import default
        from locost_jax.data import tasks
        from locost_jax.errors import InputError
        config = default.get_config()
        config.data.task = 'aeslc'
        try:
          tasks.check(config)
        except InputError as error:
          assert 'tfds build aeslc' in str(error) and '11 MiB' in str(error)
        else:
          raise AssertionError('there is data')
        """,
    'A token mixer': """
        import jax
        import numpy as np
        from configs import default
        from locost_jax import models
        from locost_jax.devices import sharding
        from locost_jax.models import flops
        from locost_jax.models import parameters
        config = default.t5()
        del config.biases_per_layer
        config.update(dict(name='difference', vocab_size=100, d_model=16,
                           d_ff=16, d_kv=4, num_heads=4, num_layers=2,
                           num_decoder_layers=2))
        model = models.build(config)
        inputs = np.array([[5, 6, 7, 0, 0], [5, 6, 7, 8, 9]])
        params = model.init(jax.random.key(0), inputs, inputs)['params']
        for path in parameters.flatten(params):
          sharding.spec_of(path)
        encode = lambda x: model.apply({'params': params}, x, x != 0,
                                       method='encode')['states']
        # Padding changes nothing.
        np.testing.assert_allclose(encode(inputs)[0, :3],
                                   encode(inputs[:1, :3])[0], 0, 1e-5)
        assert flops.of_step(model, (2, 5), (2, 5)) > 0
        """,
}


@pytest.mark.parametrize('heading', EXAMPLES)
def test_example_works(copy, heading):
  program = textwrap.dedent(PROGRAMS[heading]) + "print('right')\n"
  done = python.run('-c', program, cwd=copy, PYTHONPATH=str(copy))
  assert done.stdout.endswith('right\n')
