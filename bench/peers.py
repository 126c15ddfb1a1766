"""PyTorch models of transformers of the same size, with random weights.

t5 (v1.1, full attention) and longt5 (transient-global attention) have our
width, heads, depth and vocabulary. led (windows of 1024) and bart have the
shape of our LED or BART if --config is one, else their base shape: half as many
layers, d_ff 4 D; and positions up to the input's length.

The whole model is loaded; its encoder without gradients, its `generate`, or a
step of AdamW is timed, with one thread per core. With bfloat16, encoders and
`generate` also have bfloat16 parameters; a train step runs under autocast with
float32 parameters, as ours does. Nothing is downloaded.
"""

import importlib.util
import os

from locost_jax.errors import InputError

NAMES = 't5', 'longt5', 'led', 'bart'
SIZES = (
    'vocab_size d_model d_kv d_ff num_heads num_layers num_decoder_layers '
    'dropout_rate'
).split()


def check():
  """Raises InputError unless PyTorch and transformers are installed."""
  for name in ('torch', 'transformers'):
    if importlib.util.find_spec(name) is None:
      raise InputError(
          f'--against needs {name}, which is not installed: '
          "pip install 'locost_jax[peers]'"
      )


def prepare(spec):
  """Returns the call, see `programs`; the spec's part begins with a name."""
  import torch

  name, recomputes = spec['part'].split(',')[0], 'recomputing' in spec['part']
  torch.set_num_threads(len(os.sched_getaffinity(0)))
  torch.manual_seed(0)
  config, B, L = spec['config']['model'], spec['batch_size'], spec['length']
  model = (make_bart_like if name in ('led', 'bart') else make_t5_like)(
      name, config, L
  )
  if spec['question'] != 'train':
    model = model.to(getattr(torch, spec['dtype']))
  model.eval()
  inputs = dict(
      input_ids=torch.randint(3, config['vocab_size'], (B, L)),
      attention_mask=torch.ones((B, L), dtype=torch.long),
  )
  if name == 'led':  # to summarise: global attention on the first token
    first = (torch.arange(L) == 0).long().expand(B, L)
    inputs['global_attention_mask'] = first
  facts = dict(documents=B, threads=torch.get_num_threads())
  facts['parameters'] = sum(p.numel() for p in model.parameters())
  if spec['question'] == 'train':
    call = make_step(spec, model, inputs, recomputes)
  elif spec['question'] == 'generate':
    facts['written'] = count = spec['tokens']
    options = dict(max_new_tokens=count, min_new_tokens=count, do_sample=False)
    options['num_beams'] = spec['config']['decode']['num_beams']
    call = torch.inference_mode()(lambda: model.generate(**inputs, **options))
  else:
    facts['tokens'] = B * L
    call = torch.inference_mode()(lambda: model.get_encoder()(**inputs))
  return {spec['part']: (call, facts)}


def make_step(spec, model, inputs, recomputes):
  """Returns a train step: loss, gradients, gradient clipping, AdamW."""
  import torch

  model.train()
  model.config.use_cache = False
  if recomputes:
    model.gradient_checkpointing_enable()
  shape = spec['batch_size'], spec['tokens']
  labels = torch.randint(3, model.config.vocab_size, shape)
  optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)

  def step():
    with torch.autocast('cpu', torch.bfloat16, spec['dtype'] == 'bfloat16'):
      loss = model(**inputs, labels=labels).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)

  return step


def make_t5_like(name, config, length):
  """Makes T5 v1.1 or LongT5 with random weights, from our config.model."""
  del length
  import transformers as hf

  sizes = {key: config[key] for key in SIZES}
  sizes |= dict(feed_forward_proj='gated-gelu', decoder_start_token_id=0)
  if name == 't5':
    return hf.T5ForConditionalGeneration(hf.T5Config(**sizes))
  sizes |= dict(encoder_attention_type='transient-global', local_radius=127)
  return hf.LongT5ForConditionalGeneration(
      hf.LongT5Config(global_block_size=16, **sizes)
  )


def make_bart_like(name, config, length):
  """Makes BART or LED with random weights, for inputs of this length."""
  import transformers as hf

  same = config['name'] in ('bart', 'led')
  sizes = dict(
      vocab_size=config['vocab_size'],
      d_model=config['d_model'],
      dropout=config['dropout_rate'],
  )
  for side, layers in (
      ('encoder', config['num_layers']),
      ('decoder', config['num_decoder_layers']),
  ):
    sizes[f'{side}_layers'] = layers if same else max(1, layers // 2)
    sizes[f'{side}_attention_heads'] = config['num_heads']
    sizes[f'{side}_ffn_dim'] = config['d_ff'] if same else 4 * config['d_model']
  if name == 'bart':
    sizes['max_position_embeddings'] = max(1024, length)
    return hf.BartForConditionalGeneration(hf.BartConfig(**sizes))
  window = config.get('attention_window', 1024)
  sizes['attention_window'] = [window] * sizes['encoder_layers']
  sizes['max_encoder_position_embeddings'] = max(16384, length)
  return hf.LEDForConditionalGeneration(hf.LEDConfig(**sizes))
