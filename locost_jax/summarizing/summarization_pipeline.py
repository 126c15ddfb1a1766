"""The call of transformers 4: pipeline('summarization', model=...).

  summarizer = pipeline('summarization', model='hf://facebook/bart-large-cnn')
  summarizer('A long text ...', max_length=130, min_length=30)
  # [{'summary_text': '...'}]

transformers 5 has it no more. task_specific_params.summarization of config.json
is in force: its prefix goes before each text without it. Documents that are
longer than a model reads are cut with truncation=True only, and are an error
otherwise. `max_length` counts the start token, too, and `min_new_tokens` leaves
out eos; the lengths of `Summarizer.summarize` do neither.
"""

from locost_jax.config import decode_settings
from locost_jax.errors import InputError
from locost_jax.errors import suggest
from locost_jax.hugging_face import configs
from locost_jax.summarizing import summarizer as summarizer_lib

TASK = 'summarization'
# Options of transformers, and those of `Summarizer.summarize` besides decoding.
_THEIRS = 'max_new_tokens', 'min_new_tokens', 'do_sample'
_OURS = 'batch_size', 'seed'
_KNOWN = sorted({*decode_settings.OPTIONS, *_THEIRS, *_OURS})
_ONLY = {
    'return_text': (True,),
    'return_tensors': (False,),
    'clean_up_tokenization_spaces': (True, False, None),
}


def pipeline(task=TASK, model=None, *, batch_size=8, **options):
  """Returns a function of one or several texts -> [{'summary_text': str}, ...].

  Its options are `truncation`, `max_length`, `min_length`, `max_new_tokens`,
  `min_new_tokens`, `do_sample`, `batch_size`, `seed`, and those of
  `Summarizer.summarize`.

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
  prefix, own = '', {}
  if not isinstance(model, summarizer_lib.Summarizer):
    model = summarizer_lib.load(model, **options)
    prefix, own = configs.task_settings(model.source)
    own = {key: own[key] for key in own if key in _KNOWN}

  def summarize(documents, *, truncation=False, **options):
    documents = [documents] if isinstance(documents, str) else list(documents)
    for number, text in enumerate(documents):
      if not isinstance(text, str):
        raise InputError(
            f'document {number} is of the type {type(text).__name__}: expected '
            'str'
        )
    if not documents:
      return []
    documents = [
        text if text.startswith(prefix) else prefix + text for text in documents
    ]
    limit = None
    if truncation and not model.pages:
      limit = model.config.max_positions
    options = _translate(own | options, model.settings)
    options = {'batch_size': batch_size, **options}
    summaries = model.summarize(documents, max_input_length=limit, **options)
    return [{'summary_text': text} for text in summaries]

  return summarize


def _translate(options, settings):
  """Options of transformers -> those of `Summarizer.summarize`."""
  for name, values in _ONLY.items():
    if (value := options.pop(name, values[0])) not in values:
      raise InputError(f'{name}={value}: expected {values[0]}')
  for name in options:
    if name not in _KNOWN:
      hint = suggest(name, _KNOWN)
      raise InputError(f'pipeline: has no option {name}{hint}')
  if options.get('max_length') is not None:
    options['max_length'] = max(options['max_length'] - 1, 0)
  # min_length is the same number: eos follows start and min_length - 1 tokens.
  if (count := options.pop('max_new_tokens', None)) is not None:
    options['max_length'] = count
  if (count := options.pop('min_new_tokens', None)) is not None:
    options['min_length'] = count + 1
  most = options.get('max_length') or settings.max_length
  if options.get('min_length') == most + 1:  # here eos may be the last token
    options['min_length'] = most
  is_sampled = options.pop('do_sample', None)
  if is_sampled and options.get('num_beams') not in (None, 1):
    raise InputError(
        f'do_sample=True, num_beams={options["num_beams"]}: expected one of '
        'the two'
    )
  if is_sampled:
    options.setdefault('method', 'sample')
  elif is_sampled is False and decode_settings.method_of(settings) == 'sample':
    options.setdefault('method', 'greedy')
  return options
