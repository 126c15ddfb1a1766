"""Faithfulness: summary sentences that a passage of the document supports.

A document is split between sentences into passages of at most SIZE words, as
MiniCheck does for its FLAN-T5 (Tang et al. 2024). The support of a summary
sentence is the maximum over the passages; it is supported above --threshold.

entailment (MiniCheck's form): a T5, run by `locost_jax.load`, reads
`predict: PASSAGE</s>SENTENCE</s>`. The probability is the softmax over two
logits of the first output token: the first tokens of "1" and of "0".

hhem (HHEM-2.1-Open's form): the encoder of FLAN-T5-base reads PROMPT; a linear
layer on the state of the first token, <pad>, gives two logits; the softmax of
the second one is the probability. --model is the published directory, whose
weight names begin with `t5.`, or one saved by transformers'
T5ForTokenClassification. The tokenizer (spiece.model or tokenizer.json of
google/flan-t5-base) is not published with it and must be copied there. The
authors give the model a whole document; we give it passages, because attention
over a long document needs too much memory.
"""

import numpy as np

from locost_jax.data import text as text_lib
from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import score_metric
from locost_jax.evaluation.model_metrics import torch_models
from locost_jax.hugging_face import hub
from locost_jax.hugging_face import tensors
from locost_jax.vocabularies import vocabulary as vocabulary_lib

SIZE = 500  # words separated by whitespace
COLUMNS = (
    metric.Column('supported', 'supported %', 1),
    metric.Column('support', 'probability', 3),
)
_SMALLEST = 64  # inputs of the T5 have this many tokens times a power of two
PROMPT = (
    'Determine if the hypothesis is true given the premise?\n\n'
    'Premise: {premise}\n\nHypothesis: {hypothesis}'
)
PROMPTS = {'entailment': 'predict', 'hhem': 'hhem'}  # for signatures
# model_type of the released directory, which does not give the model's sizes.
PUBLISHED = 'HHEMv2Config'
FLAN_T5_BASE = dict(
    vocab_size=32128,
    d_model=768,
    d_kv=64,
    d_ff=2048,
    num_layers=12,
    num_heads=12,
    feed_forward_proj='gated-gelu',
)


def split(document, size=SIZE):
  """Splits a document into passages of whole sentences.

  Args:
    document: str.
    size: most words of a passage; a longer sentence is a passage of its own.
  """
  found, words = [[]], 0
  for sentence in text_lib.split_sentences(document):
    count = len(sentence.split())
    if found[-1] and words + count > size:
      found.append([])
      words = 0
    found[-1].append(sentence)
    words += count
  return [' '.join(part) for part in found]


def measure(name, rows, settings, threshold, support):
  """Measures how much of the summaries is supported: a `score_metric.Result`.

  Args:
    name: of the metric.
    rows: list of `score_metric.Row` with documents.
    settings: `score_metric.Settings`.
    threshold: a sentence above this probability counts as supported.
    support: function (list of (passage, sentence)) -> list of probabilities.
  """
  values = np.full([len(rows), 2], np.nan)
  sides = {}
  for i, row in enumerate(rows):
    settings.show(name, i, len(rows))
    ours = text_lib.split_sentences(row.prediction)
    theirs = split(row.document)
    sides[i] = (len(ours), len(theirs))
    if ours:
      found = support([(one, other) for other in ours for one in theirs])
      best = np.reshape(found, [len(ours), len(theirs)]).max(1)
      values[i] = 100 * np.mean(best > threshold), best.mean()
  silent = int(np.isnan(values[:, 0]).sum())
  return score_metric.Result(
      COLUMNS,
      {score_metric.PREDICTION: values},
      (
          torch_models.short_name(settings.model),
          f'prompt:{PROMPTS[name]}',
          f'threshold:{threshold:g}',
          f'passages:{SIZE}',
      ),
      (f'warning: {name}: {silent:,} empty predictions, left out',)
      if silent
      else (),
      more=dict(
          sentences=sum(n for n, _ in sides.values()),
          passages=sum(n for _, n in sides.values()),
      ),
  )


def entailment(rows, settings, threshold=0.5):
  """Measures support by a T5 in the form of MiniCheck: a Result."""
  from locost_jax.summarizing import pretrained

  loaded = pretrained.load(settings.model)
  name = type(loaded.config).__name__.removesuffix('Config').lower()
  if name != 't5':
    raise InputError(
        f'--model={settings.model}: --metrics=entailment needs a T5, got {name}'
    )
  if loaded.vocabulary is None:
    raise InputError(
        f'--model={settings.model}: --metrics=entailment needs its vocabulary: '
        'spiece.model or tokenizer.json'
    )
  support = lambda pairs: t5_probabilities(loaded, pairs, settings.batch_size)
  return measure('entailment', rows, settings, threshold, support)


def t5_probabilities(loaded, pairs, batch_size):
  """Returns P(supported) of each (passage, sentence), float [n].

  Args:
    loaded: a `locost_jax.Summarizer` of a T5.
    pairs: list of n pairs of str.
    batch_size: pairs per batch.
  """
  vocabulary = loaded.vocabulary
  rows = [t5_prompt(vocabulary, *pair) for pair in pairs]
  no, yes = answers(vocabulary)
  found = np.zeros(len(rows))
  for chosen in torch_models.batches(list(map(len, rows)), batch_size):
    length = _SMALLEST
    while length < len(rows[chosen[0]]):
      length *= 2
    # Always batch_size rows, so that few shapes are compiled.
    inputs = np.full([batch_size, length], vocabulary.pad_id, np.int32)
    inputs[:, 0] = vocabulary.eos_id
    for b, i in enumerate(chosen):
      inputs[b, : len(rows[i])] = rows[i]
    start = np.full([batch_size, 1], vocabulary.start_id, np.int32)
    logits = loaded.logits(inputs, start)[: len(chosen), 0]
    logits = logits.astype(np.float64)
    found[chosen] = 1 / (1 + np.exp(logits[:, no] - logits[:, yes]))
  return found


def t5_prompt(vocabulary, passage, sentence):
  """Returns the ids of 'predict: PASSAGE</s>SENTENCE</s>'."""
  eos = [vocabulary.eos_id]
  passage, sentence = (
      vocabulary.encode(text) for text in ('predict: ' + passage, sentence)
  )
  return [*passage, *eos, *sentence, *eos]


def answers(vocabulary):
  """Returns the first ids of '0' and '1'.

  Raises:
    InputError: they are equal.
  """
  no, yes = (vocabulary.encode(text)[0] for text in '01')
  if no == yes:
    raise InputError(
        '--metrics=entailment: expected a vocabulary of --model in which 0 and 1 '
        'begin with different tokens'
    )
  return no, yes


def hhem(rows, settings, threshold=0.5):
  """Measures support by a T5 in the form of HHEM-2.1-Open: a Result."""
  directory = hub.find_directory(settings.model)
  loaded = load_hhem(settings.model, directory)
  if not vocabulary_lib.is_in(directory):
    raise InputError(
        f'--model={settings.model}: --metrics=hhem needs its tokenizer: put '
        'spiece.model or tokenizer.json of google/flan-t5-base there'
    )
  vocabulary = vocabulary_lib.load_vocabulary(directory)
  support = lambda pairs: hhem_probabilities(
      loaded, vocabulary, pairs, settings.batch_size
  )
  return measure('hhem', rows, settings, threshold, support)


def load_hhem(model, directory):
  """Loads the classifier as a T5ForTokenClassification.

  Args:
    model: --model, for messages.
    directory: its local directory.

  Raises:
    InputError: the directory has another model, or weights of other shapes.
  """
  torch, transformers = torch_models.packages('hhem')
  theirs = torch_models.read_config(directory)
  problem = (
      f'--model={model}: --metrics=hhem needs HHEM-2.1-Open or a '
      'T5ForTokenClassification with two labels'
  )
  kind = theirs.get('model_type')
  if kind not in (PUBLISHED, 't5'):
    raise InputError(f'{problem}, got model_type={kind!r}')
  if kind == 't5':
    config = transformers.T5Config.from_pretrained(directory)
  else:
    config = transformers.T5Config(**FLAN_T5_BASE)
  config.num_labels = 2
  built = transformers.T5ForTokenClassification(config)
  stored = tensors.Tensors(directory)
  weights = {
      name.removeprefix('t5.'): torch.from_numpy(
          np.array(stored[name], np.float32)
      )
      for name in stored.shapes
  }
  own = built.state_dict()
  embedding = 'transformer.encoder.embed_tokens.weight'
  if 'transformer.shared.weight' in weights:
    weights.setdefault(embedding, weights['transformer.shared.weight'])
  wrong = sorted(
      name
      for name in own
      if name not in weights or own[name].shape != weights[name].shape
  )
  if wrong:
    raise InputError(
        f'{problem}, got model_type={kind!r} without weights {wrong[0]} of the '
        f'shape {list(own[wrong[0]].shape)}'
    )
  built.load_state_dict({name: weights[name] for name in own})
  device = 'cuda' if torch.cuda.is_available() else 'cpu'
  return built.eval().to(device)


def hhem_probabilities(loaded, vocabulary, pairs, batch_size):
  """Returns P(consistent) of each (passage, sentence), float [n].

  Args:
    loaded: from `load`.
    vocabulary: from the same directory.
    pairs: list of n pairs of str.
    batch_size: pairs per batch.
  """
  import torch

  rows = [hhem_prompt(vocabulary, *pair) for pair in pairs]
  found = np.zeros(len(rows))
  device = loaded.device
  for chosen in torch_models.batches(list(map(len, rows)), batch_size):
    length = len(rows[chosen[0]])
    ids = np.full([len(chosen), length], vocabulary.pad_id)
    mask = np.zeros([len(chosen), length], np.int64)
    for b, i in enumerate(chosen):
      ids[b, : len(rows[i])] = rows[i]
      mask[b, : len(rows[i])] = 1
    with torch.inference_mode():
      logits = loaded(
          input_ids=torch.from_numpy(ids).to(device),
          attention_mask=torch.from_numpy(mask).to(device),
      ).logits
    found[chosen] = logits[:, 0].double().softmax(-1)[:, 1].cpu().numpy()
  return found


def hhem_prompt(vocabulary, passage, sentence):
  """Returns the ids of PROMPT, <pad> first and </s> last."""
  text = PROMPT.format(premise=passage, hypothesis=sentence)
  return [vocabulary.pad_id, *vocabulary.encode(text), vocabulary.eos_id]
