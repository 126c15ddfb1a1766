"""Directories exchanged with transformers give the same logits."""

import copy
import dataclasses
import functools
import sys

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import locost_jax
from locost_jax import models
from locost_jax.config import decode_settings
from locost_jax.errors import InputError
from locost_jax.hugging_face import configs
from locost_jax.models import layers
from locost_jax.summarizing.summarizer import Summarizer
from locost_jax.vocabularies import byte_vocabulary
from locost_jax.vocabularies import sentencepiece_training
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from tests import bart_files
from tests import real_checkpoints
from tests import tiny_run
from tests.hugging_face.converting import change_json
from tests.hugging_face.converting import GOLDEN
from tests.hugging_face.converting import save_run
from tests.models import golden

torch = pytest.importorskip('torch', reason='needs the extra `peers`')
transformers = pytest.importorskip(
    'transformers', reason='needs the extra `peers`'
)

T5 = dict(vocab_size=80, d_model=24, d_kv=8, d_ff=40, num_heads=3)
T5 |= dict(num_layers=2, num_decoder_layers=3, decoder_start_token_id=0)
T5 |= {
    'relative_attention_num_buckets': 16,
    'relative_attention_max_distance': 24,
}
GATED = dict(T5, feed_forward_proj='gated-gelu', tie_word_embeddings=False)
LONG = dict(GATED, local_radius=4, global_block_size=4)
BART = dict(
    vocab_size=80,
    d_model=24,
    encoder_layers=2,
    decoder_layers=3,
    encoder_ffn_dim=40,
    decoder_ffn_dim=48,
    encoder_attention_heads=3,
    decoder_attention_heads=2,
    max_position_embeddings=40,
    scale_embedding=True,
    forced_eos_token_id=2,
)
MODELS = {
    't5': ('T5', T5),
    't5 v1.1': ('T5', GATED),
    'mt5': ('MT5', GATED),
    'umt5': ('UMT5', GATED),
    'longt5, local': ('LongT5', dict(LONG, encoder_attention_type='local')),
    'longt5': ('LongT5', dict(LONG, encoder_attention_type='transient-global')),
    'longt5, tied': ('LongT5', dict(T5, local_radius=4)),
    'bart': ('Bart', BART),
    'mbart': ('MBart', dict(BART, init_std=0.5, decoder_start_token_id=7)),
    'pegasus': (
        'Pegasus',
        dict(BART, init_std=0.5, activation_function='relu'),
    ),
    'bart, untied': ('Bart', dict(BART, tie_word_embeddings=False)),
}
LED = dict(MODELS['bart'][1], max_encoder_position_embeddings=64)
LED |= dict(attention_window=[4, 8], max_decoder_position_embeddings=30)
MODELS['led'] = 'LED', LED
MODELS['primera'] = 'LED', dict(LED, led_separator_id=7)
PEGASUS_X = dict(BART, init_std=0.2, block_size=8, num_global_tokens=3)
MODELS['pegasus_x'] = 'PegasusX', PEGASUS_X
# Sparse from 19 tokens on.
BIGBIRD = dict(BART, init_std=0.2, block_size=2, num_random_blocks=2)
MODELS['bigbird_pegasus'] = 'BigBirdPegasus', BIGBIRD
MODELS['bigbird_pegasus, full'] = (
    'BigBirdPegasus',
    dict(BIGBIRD, attention_type='original_full', use_bias=True),
)
MODELS['bigbird_pegasus, short'] = 'BigBirdPegasus', dict(BIGBIRD, block_size=3)
MODELS['led, a wide window'] = 'LED', dict(LED, attention_window=32)


def make(kind, values, directory):
  """Makes and saves a model of transformers without special weights."""
  config = getattr(transformers, f'{kind}Config')(**values)
  model = getattr(transformers, f'{kind}ForConditionalGeneration')(config)
  model.eval()
  generator = torch.Generator().manual_seed(0)
  with torch.no_grad():
    for parameter in model.parameters():
      if not parameter.requires_grad:
        continue  # PEGASUS's positions
      parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    if hasattr(model, 'final_logits_bias'):
      model.final_logits_bias.normal_(generator=generator)
    if values.get('tie_word_embeddings') is False:
      # transformers 5 ties them unless they differ.
      head = torch.randn(model.lm_head.weight.shape, generator=generator)
      model.lm_head.weight = torch.nn.Parameter(head)
      # A BART's embeddings are then three.
      for stack in model.get_encoder(), model.get_decoder():
        stack.embed_tokens.weight.copy_(model.get_input_embeddings().weight)
  model.save_pretrained(directory)
  return model


def tensors(model, inputs, mask=None):
  """The arguments of documents; mask: None: all but padding.

  LED's first token is global, and PRIMERA's separators.
  """
  config = model.config
  mask = inputs != config.pad_token_id if mask is None else mask
  given = dict(input_ids=inputs, attention_mask=mask)
  if config.model_type == 'led':
    marks = inputs == getattr(config, 'led_separator_id', -1)
    marks |= np.arange(inputs.shape[1]) == 0
    given['global_attention_mask'] = marks
  return {key: torch.tensor(x).long() for key, x in given.items()}


def logits(model, inputs, mask, targets):
  with torch.no_grad():
    return model(
        **tensors(model, inputs, mask), decoder_input_ids=torch.tensor(targets)
    ).logits.numpy()


def same_texts(model, directory, inputs, settings, dtype='float32'):
  """Asserts that the texts are those of transformers; returns them.

  Both read the settings from the directory's generation_config.json.
  """
  defaults = model.generation_config
  model.generation_config = copy.deepcopy(defaults)
  model.generation_config.update(**settings)
  model.generation_config.save_pretrained(directory)
  with torch.no_grad():
    want = model.generate(**tensors(model, inputs), use_cache=False)
    want = want.numpy()[:, 1:]
  model.generation_config = defaults
  summarizer = locost_jax.load(directory, dtype=dtype)
  given = summarizer.settings
  for key in settings.keys() & decode_settings.OPTIONS.keys():
    assert getattr(given, key) == settings[key]
  got = summarizer.generate(
      inputs,
      **{
          key: getattr(given, key)
          for key in decode_settings.OPTIONS
          if key not in ('method', 'start')
          and getattr(given, key) != decode_settings.OPTIONS[key].default
      },
  )
  eos = given.eos_id
  until_eos = lambda row: row[: row.index(eos)] if eos in row else row
  got, want = (
      [until_eos(row) for row in rows.tolist()] for rows in (got, want)
  )
  assert got == want, settings
  return got


def test_the_lengths_of_the_pipeline(tmp_path):
  """Texts end with a token that the model writes after three others."""
  torch.manual_seed(0)
  vocabulary = byte_vocabulary.ByteVocabulary()
  values = dict(GATED, vocab_size=vocabulary.size)
  theirs = make('T5', values, tmp_path)
  ids = vocabulary.encode('The whale sings.') + [vocabulary.eos_id]

  def write(**options):
    with torch.no_grad():
      return theirs.generate(torch.tensor([ids]), use_cache=False, **options)[
          0, 1:
      ].tolist()

  eos = write(max_new_tokens=9, eos_token_id=1, min_length=9)[3]
  ours = locost_jax.load(tmp_path)
  ours = Summarizer(ours.model, ours.params, vocabulary)
  ours.settings = dataclasses.replace(ours.settings, eos_id=eos, banned_ids=())
  call, seen = locost_jax.pipeline(model=ours), set()
  for options in (
      *(dict(max_length=20, min_length=n) for n in range(14)),
      *(dict(max_length=20, min_new_tokens=n) for n in range(14)),
      *(dict(max_new_tokens=n) for n in (2, 9)),
  ):
    want = write(eos_token_id=eos, **options)
    (found,) = call('The whale sings.', **options)
    assert found['summary_text'] == vocabulary.decode(want), options
    seen.add(len(want))
  assert len(seen) > 3


FORMS_OF_ONE = 'longt5, tied', 'led, a wide window'
FORMS_OF_ONE += 'bigbird_pegasus, full', 'bigbird_pegasus, short'


@pytest.mark.parametrize('name', [x for x in MODELS if x not in FORMS_OF_ONE])
def test_texts_of_100_documents(name, tmp_path):
  """Where both searches give the same texts by rule: see `decode`.

  Documents of 5 to 37 tokens, and of 37 where their n-grams count:
  transformers also bans those of padding. Texts end with a token that the
  model writes often.
  """
  torch.manual_seed(0)
  kind, values = MODELS[name]
  is_t5 = 'd_kv' in values
  large = dict(initializer_factor=4.0) if is_t5 else dict(init_std=1.0)
  model = make(kind, values | large, tmp_path)
  with torch.no_grad():
    for key, parameter in model.named_parameters():
      if 'encoder_attn.out_proj' in key:
        parameter.mul_(8)
  model.save_pretrained(tmp_path)
  model.double()  # such weights magnify what float32 rounds
  generator = np.random.default_rng(0)
  whole = generator.integers(3, 80, (100, 37))
  mask = np.arange(37) < generator.integers(5, 38, (100, 1))
  padded = np.where(mask, whole, model.config.pad_token_id)
  with torch.no_grad():
    written = model.generate(
        **tensors(model, padded), max_new_tokens=9, use_cache=False
    )
  eos = int(np.bincount(written[:, 4:-1].flatten()).argmax())
  plain = dict(max_new_tokens=15, min_length=4, eos_token_id=eos)
  lengths, own = set(), dict(repetition_penalty=1.5, no_repeat_ngram_size=3)
  for inputs, settings in (
      (padded, own | dict(num_beams=4, length_penalty=0.0)),
      (
          whole,
          BEAMS | dict(encoder_no_repeat_ngram_size=1, forced_eos_token_id=eos),
      ),
      (whole, own | dict(encoder_no_repeat_ngram_size=2)),
  ):
    with jax.enable_x64(True):
      found = same_texts(model, tmp_path, inputs, plain | settings, 'float64')
    distinct = set(map(tuple, found))
    assert len(distinct) > 40  # they depend on the documents
    lengths.update(map(len, found))
  assert len(lengths) > 3


@pytest.mark.parametrize('kind', configs._FAMILIES)
def test_defaults_are_those_of_transformers(kind):
  family = configs._FAMILIES[kind]
  whole = getattr(transformers, f'{family.kind}Config')().to_dict()
  keys = {'model_type', 'decoder_attention_heads', 'num_decoder_layers'}
  keys |= {
      theirs
      for ours, theirs in configs.KEYS[family.name].items()
      if ours in configs._REQUIRED
  }
  few = {key: whole[key] for key in keys & whole.keys()}
  assert configs.from_released(few) == configs.from_released(whole)


def absent_keys(kind):
  """The tensors that an export lacks: transformers makes them itself."""
  stacks = ('encoder', 'decoder') if kind == 'Pegasus' else ()
  return {f'model.{stack}.embed_positions.weight' for stack in stacks}


@pytest.mark.parametrize('name', MODELS)
def test_round_trip_through_a_run(name, tmp_path, call):
  """Loads theirs, converts it to a run, exports it, loads it there."""
  kind, values = MODELS[name]
  generator = np.random.default_rng(0)
  inputs = generator.integers(3, 80, (2, 22))
  mask = np.ones_like(inputs)
  mask[1, 17:], inputs[1, 17:] = 0, 0
  targets = generator.integers(3, 80, (2, 9))
  want = logits(make(kind, values, tmp_path / 'theirs'), inputs, mask, targets)
  scale = np.abs(want).max()
  for source, target in (('theirs', 'run'), ('run', 'back')):
    call(tmp_path / source, tmp_path / target)
  for place in ('theirs', 'run', 'back'):
    got = locost_jax.load(tmp_path / place).logits(inputs, targets, mask)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * scale)
  Theirs = getattr(transformers, f'{kind}ForConditionalGeneration')
  back, info = Theirs.from_pretrained(
      tmp_path / 'back', output_loading_info=True
  )
  absent = info.pop('missing_keys')
  assert absent == absent_keys(kind) and not any(info.values()), info
  np.testing.assert_array_equal(
      logits(back.eval(), inputs, mask, targets), want
  )
  first, last = (
      load_file(tmp_path / place / 'model.safetensors')
      for place in ('theirs', 'back')
  )
  assert last.keys() <= first.keys()
  for key, array in last.items():
    np.testing.assert_array_equal(array, first[key], err_msg=key)
  # Without the class's name, and in bfloat16.
  call(tmp_path / 'run', tmp_path / 'half', '--dtype=bfloat16')
  half = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / 'half')
  assert half.dtype == torch.bfloat16
  rounded = {key: x.float().numpy() for key, x in half.state_dict().items()}
  for key, array in last.items():
    np.testing.assert_allclose(rounded[key], array, rtol=2**-8, err_msg=key)


def check_logits(model, directory):
  """Asserts that the logits of a directory are those of its model."""
  generator = np.random.default_rng(0)
  inputs, targets = (generator.integers(3, 80, (2, n)) for n in (22, 9))
  want = logits(model, inputs, np.ones_like(inputs), targets)
  got = locost_jax.load(directory).logits(inputs, targets)
  np.testing.assert_allclose(got, want, rtol=0, atol=5e-5)


@pytest.mark.parametrize(
    'name', ('mbart', 'pegasus', 'led', 'pegasus_x', 'bigbird_pegasus')
)
def test_a_model_without_its_head(name, tmp_path):
  """Its tensors have other names, and lack the bias of the logits."""
  model = make(*MODELS[name], tmp_path / 'whole')
  model.base_model.save_pretrained(tmp_path / 'bare')
  if hasattr(model, 'final_logits_bias'):
    model.final_logits_bias.zero_()
  if name == 'mbart':
    change_json(tmp_path / 'bare/config.json', decoder_start_token_id=7)
  check_logits(model, tmp_path / 'bare')


@pytest.mark.parametrize('name', ('pegasus_x', 'bigbird_pegasus'))
def test_gradients(name, tmp_path):
  """Of every parameter; a document has padding."""
  model = make(*MODELS[name], tmp_path)
  generator = np.random.default_rng(0)
  inputs, targets = (generator.integers(3, 80, (2, n)) for n in (22, 9))
  mask = np.arange(22) < [[22], [17]]
  g = generator.normal(size=(2, 9, 80)).astype(np.float32)
  out = model(
      **tensors(model, inputs, mask), decoder_input_ids=torch.tensor(targets)
  )
  (out.logits * torch.tensor(g)).sum().backward()
  want = {
      key: x.grad.numpy()
      for key, x in model.named_parameters()
      if x.grad is not None
  }
  s = locost_jax.load(tmp_path)

  def total(params):
    found = s.model.apply({'params': params}, inputs, targets, mask)
    return (found * g).sum()

  found = golden.released(tmp_path, jax.jit(jax.grad(total))(s.params))
  assert want.keys() <= found.keys() <= want.keys() | {'final_logits_bias'}
  golden.compare_gradients(found, want, 1e-5)


@pytest.mark.parametrize('function', layers.ACTIVATIONS)
@pytest.mark.parametrize('gate', ('', 'gated-'))
def test_activations_of_t5(function, gate, tmp_path):
  values = dict(T5, feed_forward_proj=gate + function)
  check_logits(make('T5', values, tmp_path), tmp_path)
  config = configs.model_config(tmp_path)
  assert configs.from_released(configs.to_released(config)) == config
  change_json(tmp_path / 'config.json', dense_act_fn='tanh')
  with pytest.raises(InputError, match="dense_act_fn='tanh': expected"):
    locost_jax.load(tmp_path)


@pytest.mark.parametrize('function', layers.ACTIVATIONS)
def test_activations_of_bart(function, tmp_path):
  values = dict(BART, activation_function=function)
  check_logits(make('Bart', values, tmp_path), tmp_path)


def test_the_table_of_real_checkpoints(tmp_path, monkeypatch, capsys):
  """Two directories, one with separators, and one that does not exist."""
  monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
  torch.manual_seed(0)
  few = dict(vocab_size=270, init_std=0.5, max_position_embeddings=900)
  few |= dict(max_encoder_position_embeddings=900)
  few |= dict(max_decoder_position_embeddings=40)
  for kind, values in ('Bart', BART), ('LED', LED):
    model = make(kind, values | few, tmp_path / kind)
    model.generation_config.update(
        **BEAMS | dict(forced_eos_token_id=2, max_length=9)
    )
    model.generation_config.save_pretrained(tmp_path / kind)
    bart_files.write(tmp_path / kind)
  (tmp_path / 'LED' / 'added_tokens.json').write_text('{"<doc-sep>": 264}')
  names = [str(tmp_path / name) for name in ('Bart', 'LED', 'none')]
  real_checkpoints.main(names)
  *_, head, line, first, second, last = capsys.readouterr().out.splitlines()
  assert {x.count('|') for x in (head, line, first, second, last)} == {8}
  for row in first, second:
    _, ids, off, greedy, own, *_ = (x.strip() for x in row[1:].split('|'))
    assert (ids, greedy, own) == ('equal',) * 3
    assert float(off.split(',')[0]) < 5e-5
  assert 'InputError: ' in last and 'no such directory' in last
  a = dict(ids=np.array([[3, 4, 5]]), logits=np.zeros(2), seconds=1, peak=1)
  a |= dict(greedy=a['ids'], own=a['ids'][:, :1])
  b = a | dict(greedy=a['ids'] + [0, 0, 1], own=a['ids'], logits=np.ones(2))
  got = real_checkpoints.cells(a, b)
  assert got[:4] == ('equal', '1.0e+00, 1.0', 'first 2', 'first 1')


def test_a_pegasus_x_without_staggered_blocks_is_refused(tmp_path):
  make('PegasusX', dict(PEGASUS_X, stagger_local_blocks=False), tmp_path)
  with pytest.raises(InputError, match='stagger_local_blocks=False: expected'):
    locost_jax.load(tmp_path)


def test_an_mt5_without_an_output_layer(tmp_path):
  """It is the embedding, and logits are not scaled as T5's would be."""
  check_logits(make('MT5', T5, tmp_path), tmp_path)


@pytest.mark.parametrize('kind', ('byte', 'sentencepiece'))
def test_tokenizers_read_the_same_ids(kind, tmp_path, call):
  """AutoTokenizer reads a run's vocabulary."""
  tiny_run.make(tmp_path / 'run')
  text = 'The cat sat on the mat, and so did 3 dogs.'
  if kind == 'sentencepiece':
    sentencepiece_training.train(
        [text, 'a dog and a cat', 'dogs sit on mats'] * 9,
        tmp_path / 'spiece.model',
        220,
    )
    vocabulary_lib.save_vocabulary(
        vocabulary_lib.load_vocabulary(tmp_path / 'spiece.model'),
        tmp_path / 'run' / 'vocabulary',
    )
  report = call(tmp_path / 'run', tmp_path / 'out')
  ours = vocabulary_lib.load_vocabulary(tmp_path / 'out')
  theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / 'out')
  assert theirs(text).input_ids == ours.encode(text) + [ours.eos_id]
  assert len(theirs) == ours.size
  assert report['copied'][-1] == 'vocabulary.json'


# Where both searches give the same texts by rule: see `decode`.
BEAMS = dict(num_beams=4, length_penalty=2.0, early_stopping=True)
BEAMS |= dict(forced_eos_token_id=1)
LOCOST = sorted(GOLDEN.glob('locost_*/config.json'))


@pytest.fixture
def load_code(tmp_path, monkeypatch):
  """load_code(directory, ...) -> the model of the code in the directory."""
  cache = str(tmp_path / 'modules')
  monkeypatch.setattr(
      transformers.dynamic_module_utils, 'HF_MODULES_CACHE', cache
  )
  # Imported modules do not change.
  for name in [name for name in sys.modules if 'transformers_modules' in name]:
    monkeypatch.delitem(sys.modules, name)
  return functools.partial(
      transformers.AutoModelForSeq2SeqLM.from_pretrained, trust_remote_code=True
  )


@pytest.mark.parametrize('folder', [path.parent.name for path in LOCOST])
def test_an_exported_locost(folder, tmp_path, call, load_code):
  """Next to the release's arrays; both ways, and in bfloat16."""
  call(GOLDEN / folder, tmp_path / 'run')
  call(tmp_path / 'run', tmp_path / 'out')
  model, info = load_code(tmp_path / 'out', output_loading_info=True)
  assert not any(info.values()), info
  io = np.load(GOLDEN / folder / 'io.npz')
  inputs, mask, targets, labels = (
      torch.tensor(io[key]).long()
      for key in ('input_ids', 'attention_mask', 'decoder_input_ids', 'labels')
  )
  given = dict(input_ids=inputs, attention_mask=mask)
  learned = given | dict(decoder_input_ids=targets, labels=labels)
  with torch.no_grad():
    got = model(**learned, output_hidden_states=True)
  assert len(got.encoder_hidden_states) == 1 + model.config.num_layers
  read = got.encoder_last_hidden_state
  for found, key in (
      (got.logits, 'f64/logits'),
      (got.loss, 'f64/loss'),
      (read, 'f64/enc_last'),
  ):
    if key in io:
      np.testing.assert_allclose(found.numpy(), io[key], rtol=0, atol=5e-5)
  want = io['hf_generate_greedy']
  with torch.no_grad():
    got = model.generate(**given, max_new_tokens=16).numpy()
  np.testing.assert_array_equal(got, want[:, : got.shape[1]])
  assert (want[:, got.shape[1] :] == 0).all()
  beams = BEAMS | dict(no_repeat_ngram_size=3)
  whole = io['input_ids'][io['attention_mask'].all(1)]
  same_texts(model, tmp_path / 'out', whole, beams | dict(max_new_tokens=12))
  # Back, as transformers saves it.
  model.save_pretrained(tmp_path / 'back')
  first, last = (
      locost_jax.load(tmp_path / place).logits(
          io['input_ids'], io['decoder_input_ids'], io['attention_mask']
      )
      for place in ('run', 'back')
  )
  np.testing.assert_array_equal(first, last)
  again = load_code(tmp_path / 'back')
  with torch.no_grad():
    assert torch.equal(again(**learned).logits, model(**learned).logits)
  call(tmp_path / 'run', tmp_path / 'half', '--dtype=bfloat16')
  half = load_code(tmp_path / 'half')
  assert half.dtype == torch.bfloat16
  mixer = half.encoder.block[0].layer[0].ssm_layer
  assert {x.dtype for x in mixer.kernel.parameters()} == {torch.float32}
  with torch.no_grad():
    assert half(**learned).logits.isfinite().all()


FORMS = {
    'paper': dict(variant='paper'),
    'paper, one direction': dict(variant='paper', bidirectional=False),
    'paper, without a gate': dict(variant='paper', gating=False),
    'one direction': dict(bidirectional=False),
}


@pytest.mark.parametrize('form', FORMS)
def test_forms_of_an_exported_locost(
    form, small_model_config, tmp_path, call, load_code
):
  small_model_config.update(FORMS[form])
  model = models.build(small_model_config)
  generator = np.random.default_rng(0)
  inputs, targets = (generator.integers(3, 60, (2, n)) for n in (23, 9))
  params = model.init(jax.random.key(0), inputs, targets)['params']
  save_run(tmp_path / 'run', small_model_config, params)
  call(tmp_path / 'run', tmp_path / 'out')
  theirs = load_code(tmp_path / 'out')
  mask = np.arange(23) < [[23], [17]]
  inputs *= mask
  got = logits(theirs, inputs, mask, targets)
  want = locost_jax.load(tmp_path / 'run').logits(inputs, targets)
  np.testing.assert_allclose(got, want, rtol=0, atol=5e-5)
  call(tmp_path / 'out', tmp_path / 'again')
  back = locost_jax.load(tmp_path / 'again')
  np.testing.assert_array_equal(back.logits(inputs, targets), want)
  for key, value in FORMS[form].items():
    assert getattr(back.config, key) == value


def test_an_unknown_form_is_refused(release, tmp_path, call, load_code):
  call(release, tmp_path / 'run')
  call(tmp_path / 'run', tmp_path / 'out')
  change_json(tmp_path / 'out' / 'config.json', locost_variant='fast')
  with pytest.raises(ValueError, match="locost_variant='fast': expected .*rel"):
    load_code(tmp_path / 'out')
