"""The call of transformers 4: pipeline('summarization', model=...).

transformers 5 has no pipeline for summaries any more. This one takes the same
call and gives the same list of dicts, so a program changes its import alone:

  from locost_jax import pipeline
  summarizer = pipeline('summarization', model='hf://facebook/bart-large-cnn')
  summarizer('A long text ...', max_length=130, min_length=30)
  # [{'summary_text': '...'}]

Two things differ. Documents that are longer than a model reads are cut with
`truncation=True` only, and are an error otherwise. `summarize` and the command
count the tokens that are written; here `max_length` and `min_length` count the
start token too, as in transformers.
"""

from locost_jax.config import decode_settings
from locost_jax.errors import InputError
from locost_jax.errors import suggest
from locost_jax.summarizing import pretrained
from locost_jax.summarizing import summarizer as summarizer_lib

TASK = 'summarization'
# Options of transformers' generate that have another name here, or none.
_TRANSLATED = (
    'max_length',
    'min_length',
    'max_new_tokens',
    'min_new_tokens',
    'do_sample',
)
_FORMS = {'return_text': True, 'return_tensors': False}


def pipeline(task=TASK, model=None, *, batch_size=8, **options):
  """Returns a function that summarises, as in transformers 4.

  Args:
    task: 'summarization'.
    model: what `locost_jax.load` takes, or a Summarizer.
    batch_size: most documents read at once.
    **options: other options of `locost_jax.load`.

  Raises:
    InputError: another task, no model, or what `load` refuses.
  """
  if task != TASK:
    raise InputError(f'pipeline({task!r}): expected {TASK!r}')
  if model is None:
    raise InputError(
        "pipeline: has no default model; expected model='hf://org/name', a "
        'directory, or a Summarizer'
    )
  if not isinstance(model, summarizer_lib.Summarizer):
    model = pretrained.load(model, **options)
  elif options:
    raise InputError(
        f'pipeline: {", ".join(options)}: for a model that is loaded here; '
        'expected none with a Summarizer'
    )
  return SummarizationPipeline(model, batch_size)


class SummarizationPipeline:
  """Texts -> [{'summary_text': ...}]."""

  task = TASK

  def __init__(self, summarizer, batch_size=8):
    self.summarizer, self.batch_size = summarizer, batch_size

  def __repr__(self):
    return f'SummarizationPipeline({self.summarizer!r})'

  def __call__(self, documents, *, truncation=False, **options):
    """Summarises a text or a list of texts.

    Args:
      truncation: whether documents longer than the model reads are cut.
      **options: `max_length`, `min_length` (the start token counts),
        `max_new_tokens`, `min_new_tokens` (it does not), `do_sample`,
        `batch_size`, `seed`, and the options of `Summarizer.summarize`.

    Returns:
      A list with a dict for each document: {'summary_text': str}.

    Raises:
      InputError: an option that this pipeline does not have, or a document
        that is too long.
    """
    is_one = isinstance(documents, str)
    documents = [documents] if is_one else list(documents)
    for number, text in enumerate(documents):
      if not isinstance(text, str):
        raise InputError(
            f'document {number} is of the type {type(text).__name__}: expected '
            'str'
        )
    if not documents:
      return []
    limit = None
    if truncation and not self.summarizer.pages:
      limit = self.summarizer.config.max_positions
    usual = decode_settings.method_of(self.summarizer.settings)
    options = {'batch_size': self.batch_size, **_translate(options, usual)}
    summaries = self.summarizer.summarize(
        documents, max_input_length=limit, **options
    )
    return [{'summary_text': text} for text in summaries]


def _translate(options, usual):
  """Options of transformers -> those of `Summarizer.summarize`.

  Args:
    usual: the method of a model's own settings.
  """
  for name, value in _FORMS.items():
    if options.pop(name, value) != value:
      raise InputError(f'{name}={not value}: expected {value}')
  options.pop('clean_up_tokenization_spaces', None)
  known = {*decode_settings.OPTIONS, *_TRANSLATED, 'batch_size', 'seed'}
  for name in options:
    if name not in known:
      raise InputError(
          f'pipeline: has no option {name}{suggest(name, sorted(known))}'
      )
  for name in 'max', 'min':
    count, with_start = (
        options.pop(f'{name}_new_tokens', None),
        f'{name}_length',
    )
    if options.get(with_start) is not None:
      options[with_start] = max(options[with_start] - 1, 0)
    if count is not None:
      options[with_start] = count
  do_sample = options.pop('do_sample', None)
  if do_sample and options.get('num_beams') not in (None, 1):
    raise InputError(
        f'do_sample=True, num_beams={options["num_beams"]}: expected one of '
        'the two'
    )
  if do_sample:
    options.setdefault('method', 'sample')
  elif do_sample is not None and usual == 'sample':
    options.setdefault('method', 'greedy')
  return options
