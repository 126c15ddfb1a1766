"""PyTorch models of transformers of the same size, with random weights.

  t5       T5 v1.1, full attention
  longt5   LongT5, transient-global attention
  led      LED: half as many layers, d_ff 4 D, windows of 1024 (its base size)
  bart     BART: half as many layers, d_ff 4 D (its base size)

Width, heads, depth and vocabulary come from our config; at the paper's size
these are the base models. Embeddings are tied, as in ours. LED and BART have
position embeddings up to the length of the input. The whole model is loaded;
its encoder without gradients, its `generate`, or a step of AdamW is timed, with
one thread per core. With bfloat16, encoders and `generate` also have bfloat16
parameters; a train step runs under autocast with float32 parameters, as ours
does. Nothing is downloaded.
"""

import importlib.util

from locost_jax.benchmarks import machine
from locost_jax.benchmarks import timing
from locost_jax.errors import InputError

NAMES = ('t5', 'longt5', 'led', 'bart')
INSTALL = "pip install 'locost_jax[peers]'"


def check():
  """Raises InputError unless PyTorch and transformers are installed."""
  for name in ('torch', 'transformers'):
    if importlib.util.find_spec(name) is None:
      raise InputError(
          f'--against needs {name}, which is not installed: {INSTALL}'
      )


def prepare(spec, report):
  """Loads a peer.

  Args:
    spec: dict with peer (one of NAMES), model (our config.model), dtype, seed,
      batch_size and length. learns: whether to time a train step; it needs
      tokens (of a target) and recomputes (activations, layer by layer). writes:
      whether to time `generate`; it needs tokens (to generate) and num_beams.
    report: function (line) that shows progress.

  Returns:
    (known, run), see `processes.serve`.
  """
  check()
  report(f'loading {spec["peer"]}')
  import torch

  torch.set_num_threads(machine.cores())
  torch.manual_seed(spec['seed'])
  make = _make_bart_like if spec['peer'] in ('led', 'bart') else _make_t5_like
  model = make(spec['peer'], spec['model'], spec['length'])
  if not spec['learns']:
    model = model.to(getattr(torch, spec['dtype']))
  model.eval()
  shape = spec['batch_size'], spec['length']
  inputs = dict(
      input_ids=torch.randint(3, spec['model']['vocab_size'], shape),
      attention_mask=torch.ones(shape, dtype=torch.long),
  )
  if spec['peer'] == 'led':
    # For summarisation LED has global attention on its first token.
    attends = torch.zeros(shape, dtype=torch.long)
    attends[:, 0] = 1
    inputs['global_attention_mask'] = attends
  if spec['learns']:
    call = _make_step(spec, model, inputs)
  elif spec['writes']:
    call = _make_generation(spec, model, inputs)
  else:
    encoder = model.get_encoder()

    def call():
      with torch.inference_mode():
        encoder(**inputs)

  def run():
    return dict(seconds=timing.timed(call))

  parameters = sum(p.numel() for p in model.parameters())
  return (
      dict(
          platform='cpu',
          device='cpu',
          parameters=parameters,
          threads=torch.get_num_threads(),
      ),
      run,
  )


def _make_step(spec, model, inputs):
  """Returns a train step: loss, gradients, gradient clipping, AdamW."""
  import torch

  model.train()
  model.config.use_cache = False
  if spec['recomputes']:
    model.gradient_checkpointing_enable()
  labels = torch.randint(
      3, spec['model']['vocab_size'], (spec['batch_size'], spec['tokens'])
  )
  optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)

  def step():
    with torch.autocast('cpu', torch.bfloat16, spec['dtype'] == 'bfloat16'):
      loss = model(**inputs, labels=labels).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)

  return step


def _make_generation(spec, model, inputs):
  """Returns a function that generates spec['tokens'] tokens from the input."""
  import torch

  def generate():
    with torch.inference_mode():
      return model.generate(
          **inputs,
          max_new_tokens=spec['tokens'],
          min_new_tokens=spec['tokens'],
          num_beams=spec['num_beams'],
          do_sample=False,
      )

  return generate


def _make_t5_like(name, config, length):
  """Makes T5 v1.1 or LongT5 with random weights."""
  del length
  import transformers

  sizes = dict(
      vocab_size=config['vocab_size'],
      d_model=config['d_model'],
      d_kv=config['d_kv'],
      d_ff=config['d_ff'],
      num_heads=config['num_heads'],
      num_layers=config['num_layers'],
      num_decoder_layers=config['num_decoder_layers'],
      dropout_rate=config['dropout_rate'],
      feed_forward_proj='gated-gelu',
      decoder_start_token_id=0,
  )
  if name == 't5':
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(**sizes)
    )
  return transformers.LongT5ForConditionalGeneration(
      transformers.LongT5Config(
          encoder_attention_type='transient-global',
          local_radius=127,
          global_block_size=16,
          **sizes,
      )
  )


def _make_bart_like(name, config, length):
  """Makes BART or LED with random weights."""
  import transformers

  D, heads = config['d_model'], config['num_heads']
  encoder_layers = max(1, config['num_layers'] // 2)
  decoder_layers = max(1, config['num_decoder_layers'] // 2)
  sizes = dict(
      vocab_size=config['vocab_size'],
      d_model=D,
      dropout=config['dropout_rate'],
      encoder_layers=encoder_layers,
      decoder_layers=decoder_layers,
      encoder_attention_heads=heads,
      decoder_attention_heads=heads,
      encoder_ffn_dim=4 * D,
      decoder_ffn_dim=4 * D,
  )
  if name == 'bart':
    return transformers.BartForConditionalGeneration(
        transformers.BartConfig(
            max_position_embeddings=max(1024, length), **sizes
        )
    )
  return transformers.LEDForConditionalGeneration(
      transformers.LEDConfig(
          attention_window=[1024] * encoder_layers,
          max_encoder_position_embeddings=max(16384, length),
          **sizes,
      )
  )
