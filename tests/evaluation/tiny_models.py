"""Makes tiny random models for the metrics that a model computes.

Weights come from NumPy, so that golden numbers do not depend on the version of
PyTorch or transformers.
"""

import numpy as np

TEXTS = (
    'The river rose and the town was flooded in spring.',
    'Nobody had expected the rain to last; engineers closed both bridges.',
    'Later the council paid for higher walls along the river.',
)
MARKS = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')
LETTERS = 'abcdefghijklmnopqrstuvwxyz'
# 'higher' and 'walls' become two pieces, 'bridges' and 'engineers' letters.
WORDS = (
    """the river rose and town was in spring nobody had expected rain to last
 closed both later council paid for along flooded high wall bridge""".split()
)
PIECES = ('##s', '##ed', '##er')
BERT = dict(
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=64,
)


def fill(model, scale, seed=0):
  """Sets weights to random numbers around 0, scales of norms around 1."""
  import torch

  draw = np.random.default_rng(seed)
  with torch.no_grad():
    for name, weight in sorted(model.named_parameters()):
      numbers = scale * draw.normal(size=tuple(weight.shape))
      if name.endswith('bias'):
        numbers *= 0.1  # otherwise all tokens are alike
      is_scale = 'norm' in name.lower() and name.endswith('weight')
      weight.copy_(torch.from_numpy(numbers + is_scale))
  return model


def bert(directory, kind='BertForPreTraining', scale=0.3, seed=0):
  """Saves a BERT with random weights and its tokenizer; returns the directory."""
  import transformers

  vocabulary = [*MARKS, *'.,;', *LETTERS, *(f'##{x}' for x in LETTERS)]
  vocabulary += [*WORDS, *PIECES]
  vocabulary = list(dict.fromkeys(vocabulary))
  transformers.BertTokenizer(
      vocab={token: i for i, token in enumerate(vocabulary)},
      do_lower_case=True,
      model_max_length=64,
  ).save_pretrained(directory)
  config = transformers.BertConfig(vocab_size=len(vocabulary), **BERT)
  fill(getattr(transformers, kind)(config), scale, seed).save_pretrained(
      directory
  )
  return directory
