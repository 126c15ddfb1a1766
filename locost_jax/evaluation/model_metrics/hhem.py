"""Faithfulness in the form of HHEM-2.1-Open: FLAN-T5-base with a classifier.

An encoder reads PROMPT with a passage and a sentence. A linear layer on the
state of the first token, <pad>, gives two logits; the softmax probability of
the second one is the probability that the sentence is consistent with the
passage.

--model is the published directory, whose weight names begin with `t5.`, or one
saved by transformers' T5ForTokenClassification. The tokenizer (spiece.model or
tokenizer.json of google/flan-t5-base) is not published with the model and must
be copied there. The authors give the model a whole document; we give it
passages, like `entailment`, because attention over a long document needs too
much memory.
"""

import numpy as np

from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import score_metric
from locost_jax.evaluation.model_metrics import passages
from locost_jax.evaluation.model_metrics import torch_models
from locost_jax.hugging_face import hub
from locost_jax.hugging_face import tensors
from locost_jax.vocabularies import vocabulary as vocabulary_lib

NAME = 'hhem'
PROMPT = (
    'Determine if the hypothesis is true given the premise?\n\n'
    'Premise: {premise}\n\nHypothesis: {hypothesis}'
)
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


def run(rows, settings):
  """Measures how much of the summaries is consistent: a `score_metric.Result`.

  Args:
    rows: list of `score_metric.Row` with documents.
    settings: `score_metric.Settings`; uses model, threshold and batch_size.
  """
  directory = hub.find_directory(settings.model)
  loaded = load(settings.model, directory)
  if not vocabulary_lib.is_in(directory):
    raise InputError(
        f'--model={settings.model}: --metrics={NAME} needs its tokenizer: put '
        'spiece.model or tokenizer.json of google/flan-t5-base there'
    )
  vocabulary = vocabulary_lib.load_vocabulary(directory)
  support = lambda pairs: probabilities(
      loaded, vocabulary, pairs, settings.batch_size
  )
  name = torch_models.short_name(settings.model)
  return passages.run(NAME, rows, settings, support, (name, 'prompt:hhem'))


def load(model, directory):
  """Loads the classifier as a T5ForTokenClassification.

  Args:
    model: --model, for messages.
    directory: its local directory.

  Raises:
    InputError: the directory has another model, or weights of other shapes.
  """
  torch, transformers = torch_models.packages(NAME)
  theirs = torch_models.read_config(directory)
  problem = (
      f'--model={model}: --metrics={NAME} needs HHEM-2.1-Open or a '
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


def probabilities(loaded, vocabulary, pairs, batch_size):
  """Returns P(consistent) of each (passage, sentence), float [n].

  Args:
    loaded: from `load`.
    vocabulary: from the same directory.
    pairs: list of n pairs of str.
    batch_size: pairs per batch.
  """
  import torch

  rows = [prompt(vocabulary, *pair) for pair in pairs]
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


def prompt(vocabulary, passage, sentence):
  """Returns the ids of PROMPT, <pad> first and </s> last."""
  text = PROMPT.format(premise=passage, hypothesis=sentence)
  return [vocabulary.pad_id, *vocabulary.encode(text), vocabulary.eos_id]


METRIC = score_metric.ScoreMetric(
    NAME,
    'consistency of sentences with the document (a T5 in the form of '
    'HHEM-2.1-Open)',
    run,
    (score_metric.DOCUMENT, score_metric.MODEL),
)
