"""BART matches transformers 4.30.2; names convert in both directions."""

import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import numpy as safetensors

from locost_jax import models
from locost_jax.errors import InputError
from locost_jax.generation import decode_settings
from locost_jax.generation import generate
from locost_jax.hugging_face import bart_configs
from locost_jax.hugging_face import names as names_lib
from locost_jax.models import bart_layers
from locost_jax.models import decoder_layers
from locost_jax.models import parameters
from locost_jax.summarizing.summarizer import Summarizer
from locost_jax.training import losses

TABLE = names_lib.table({'name': 'bart'})
GOLDEN = Path(__file__).parents[1] / 'golden' / 'bart'
IDS = dict(eos_id=2, pad_id=1, start_id=2)


@functools.lru_cache
def arrays(name='io'):
  return dict(np.load(GOLDEN / f'{name}.npz'))


def released():
  """Returns (config.json, tensors by name) of the golden directory."""
  return (
      json.loads((GOLDEN / 'config.json').read_text()),
      safetensors.load_file(GOLDEN / 'state_dict.safetensors'),
  )


def ours(tensors, config, table=TABLE):
  """Converts a released state dict to our parameters; uses every tensor."""
  tensors, flat = dict(tensors), {}
  for path, name, form in table.rows:
    layers = config['num_decoder_layers' if 'decoder' in path else 'num_layers']
    flat[path] = (
        form[0](tensors.pop(name))
        if '{}' not in name
        else np.stack(
            [form[0](tensors.pop(name.format(i))) for i in range(layers)]
        )
    )
  for name in table.copies['model.shared.weight']:
    if name in tensors:
      np.testing.assert_array_equal(
          tensors.pop(name), flat['token_embedding/embedding']
      )
  assert not tensors
  return parameters.unflatten(flat)


def theirs(params, table=TABLE):
  """Returns our parameters or gradients under the released names."""
  flat, named = parameters.flatten(params), {}
  for path, name, form in table.rows:
    if '{}' in name:
      for i, layer in enumerate(flat.pop(path)):
        named[name.format(i)] = form[1](np.asarray(layer))
    else:
      named[name] = form[1](np.asarray(flat.pop(path)))
  assert not flat
  return named


@functools.lru_cache
def golden_model(dtype):
  config, tensors = released()
  config = bart_configs.model_config(config)
  params = ours(tensors, config)
  precise = jnp.promote_types(dtype, jnp.float32)
  return models.build(config, dtype), jax.tree.map(
      lambda x: jnp.asarray(x, precise), params
  )


def hidden(model, params, inputs, mask, targets):
  """Returns the memory, and all states and logits by golden name."""
  apply = functools.partial(model.apply, {'params': params})
  memory = apply(inputs, mask, method='encode')
  found = {
      'enc_last': memory['states'],
      'logits': apply(memory, targets, method='decode'),
  }
  h, mask = apply(inputs, mask, method='embed')
  layer = bart_layers.EncoderLayer(model.config, model.dtype)
  for i in range(2):
    found[f'enc_hidden_{i}'] = h
    own = jax.tree.map(lambda p: p[i], params['encoder']['layers'])
    h, _ = layer.apply({'params': own}, h, mask, True)
  positions = np.arange(targets.shape[1])
  h = apply(
      targets,
      method=lambda self, tokens: self.decoder.embed(
          self.vectors(tokens), positions
      ),
  )
  layer = decoder_layers.DecoderLayer(
      model.config, model.dtype, bart_layers.PARTS
  )
  for i in range(3):
    found[f'dec_hidden_{i}'] = h
    if i < 2:
      own = jax.tree.map(lambda p: p[i], params['decoder']['layers'])
      h, _ = layer.apply(
          {'params': own},
          h,
          memory['states'],
          mask,
          positions <= positions[:, None],
          None,
          True,
      )
  return memory, found


@pytest.mark.parametrize('dtype,atol', (('float32', 2e-4), ('float64', 1e-9)))
def test_golden_states_and_logits(dtype, atol):
  io = arrays()
  inputs, mask = io['input_ids'], io['attention_mask']
  with jax.enable_x64(dtype == 'float64'):
    model, params = golden_model(dtype)
    memory, got = jax.jit(functools.partial(hidden, model))(
        params, inputs, mask, io['decoder_input_ids']
    )
  assert memory['states'].dtype == dtype
  assert {f'f64/{name}' for name in got} | {'f64/loss'} == {
      name for name in io if name.startswith('f64/')
  }
  for name, value in got.items():
    np.testing.assert_allclose(
        value, io[f'f64/{name}'], rtol=0, atol=atol, err_msg=name
    )


@pytest.mark.parametrize(
    'dtype,atol,bound', (('float32', 2e-4, 1e-3), ('float64', 1e-9, 1e-6))
)
def test_golden_loss_and_gradients(dtype, atol, bound):
  """The golden gradients are stored as float32."""
  io, want = arrays(), arrays('grads')
  labels = io['labels']
  with jax.enable_x64(dtype == 'float64'):
    model, params = golden_model(dtype)

    def loss(params):
      logits = model.apply(
          {'params': params},
          io['input_ids'],
          io['decoder_input_ids'],
          io['attention_mask'],
      )
      total, weight = losses.cross_entropy(
          logits, np.maximum(labels, 0), labels != -100
      )
      return total / weight

    got, grads = jax.jit(jax.value_and_grad(loss))(params)
    np.testing.assert_allclose(got, io['f64/loss'], rtol=0, atol=atol)
    grads = theirs(grads)
  assert set(grads) - set(want) == {'final_logits_bias'}  # a buffer in torch
  assert set(want) <= set(grads)
  for name, array in want.items():
    error = np.abs(grads[name] - array).max()
    assert error <= bound * np.abs(array).max() + 1e-7, name


def test_names_and_config_round_trip():
  config, tensors = released()
  mine = bart_configs.model_config(config)
  back = theirs(ours(tensors, mine))
  assert set(tensors) - set(back) == set(TABLE.copies['model.shared.weight'])
  for name, tensor in back.items():
    np.testing.assert_array_equal(tensor, tensors[name])
  written = bart_configs.released_config(mine)
  assert bart_configs.model_config(written) == mine
  assert {
      key: config[key]
      for key in written
      if key not in ('model_type', 'architectures')
  } == {
      key: written[key]
      for key in written
      if key not in ('model_type', 'architectures')
  }


@pytest.mark.parametrize(
    'change,message',
    (
        ({'activation_function': 'relu'}, "activation_function='relu'"),
        ({'normalize_before': True}, 'normalize_before=True: expected False'),
        ({'tie_word_embeddings': False}, 'tie_word_embeddings=False'),
        ({'d_model': None}, "lacks the key 'd_model'"),
    ),
)
def test_other_kinds_of_bart_are_refused(change, message):
  config, _ = released()
  with pytest.raises(InputError, match=message):
    bart_configs.model_config(config | change)


def test_numbers_of_heads_of_both_stacks():
  config, _ = released()
  mine = bart_configs.model_config(config | {'decoder_attention_heads': 2})
  assert (mine['num_heads'], mine['num_decoder_heads']) == (4, 2)
  written = bart_configs.released_config(mine)
  assert written['decoder_attention_heads'] == 2
  assert bart_configs.model_config(written) == mine


def summarizer():
  model, params = golden_model('float32')
  return Summarizer(model, params, settings=decode_settings.Settings(**IDS))


def test_golden_greedy_tokens():
  """Also from inputs that `generate` pads to a bucket."""
  io = arrays()
  inputs, mask = io['input_ids'], io['attention_mask']
  want = io['greedy_tokens']
  assert not (want == IDS['eos_id']).any()
  for given in (mask, None):
    got = summarizer().generate(inputs, given, max_length=20)
    np.testing.assert_array_equal(got, want)
  got = summarizer().generate(inputs, max_length=14, forced_last_token=2)
  np.testing.assert_array_equal(got, io['hf_generate_greedy'][:, 1:])


def test_golden_beams():
  """transformers 4.30.2; its min_length of 5 counts the start, not eos."""
  io, (model, params) = arrays(), golden_model('float32')
  settings = decode_settings.Settings(
      num_beams=4,
      length_penalty=2.0,
      no_repeat_ngram_size=3,
      min_length=5,
      early_stopping=True,
      max_length=14,
      forced_last_token=2,
      **IDS,
  )
  found, scores = generate.generate(
      model, params, io['input_ids'], io['attention_mask'], settings
  )
  np.testing.assert_array_equal(found, io['hf_generate_beam4'][:, 1:])
  np.testing.assert_allclose(
      scores, io['hf_generate_beam4_scores'], rtol=0, atol=2e-5
  )


def test_progress_of_a_model_that_encodes_in_one_program():
  seen = []
  io = arrays()
  got = summarizer().generate(
      io['input_ids'], max_length=4, progress=lambda *call: seen.append(call)
  )
  np.testing.assert_array_equal(got, io['greedy_tokens'][:, :4])
  assert seen == [
      ('encoding', 0, 2),
      ('encoding', 2, 2),
      ('decoding', 0, 4),
      ('decoding', 4, 4),
  ]
