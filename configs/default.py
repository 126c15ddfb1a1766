"""Every key of a run with its default. Other configs change what they need.

Start a config with `from configs import default`, then
`config = default.get_config()`. On the command line every key can be set:
`--config.model.d_model=256`.
"""

from ml_collections import ConfigDict


def get_config():
  """Returns the paper-size LOCOST on no data yet."""
  config = ConfigDict()

  config.model = locost()

  config.data = ConfigDict(dict(
      task='',  # a corpus (locost_jax/data/corpora.py, rows.py) or mixture
      train_files='',  # JSONL(.gz) globs, comma separated; replace task
      validation_files='',  # likewise; '': 2% of the rows, by hash
      test_files='',  # likewise; '': no test split
      input_field='document',  # the field that is read
      target_field='summary',  # the field that is to be written
      query_field='',  # the field in front of it; '': `query`, where there is
      vocabulary='train',  # T5's or BART's files, 'byte' or 'train'
      vocabulary_size=8000,  # tokens of a trained one, extra ids included
      max_input_length=4096,  # tokens kept of an input, eos included
      max_target_length=512,  # tokens kept of a target, eos included
      input_buckets=(),  # padded input lengths; (): 2^k and 1.5 * 2^k
      target_buckets=(),  # padded target lengths, likewise
      cache_dir='',  # where tokenised records lie; '': WORKDIR/cache
      window_shards=8,  # shards shuffled together, of a corpus cached in parts
      corpora_dir='corpora',  # where data/prepare.py puts named corpora
      tfds_dir='',  # where TFDS keeps prepared data; '': its own default
      check_sizes=True,  # refuse a named corpus of other sizes than its paper's
      mixture_cap=100_000,  # records that a task of a mixture counts as at most
      packing=False,  # several short documents in a row, for models that can
      pages='',  # 'spatial', 'discourse', 'document': pages of PageSum;
                 # 'chunks', 'sentence_chunks': of SimCAS; '': one sequence
      num_pages=7,  # pages of a document
      page_length=1024,  # tokens kept of a page or chunk, marks included
      empty_page='.',  # text of a page without any; '': nothing, masked
      seed=0,  # of the order of the examples
  ))

  # None: summarise (input_field -> target_field). Otherwise gap sentences from
  # input_field: ConfigDict(dict(ratio=0.2, strategy='independent', mask='',
  # seed=0)); data/gsg.py has the strategies.
  config.gsg = None

  config.optim = ConfigDict(dict(
      name='adamw',  # 'adamw' or 'adafactor'
      schedule='constant',  # 'constant' or 'inverse_sqrt' (T5's)
      learning_rate=5e-4,  # the peak
      warmup=0,  # inverse_sqrt: the flat part at the peak, in steps (T5's way)
      ramp=0,  # steps of a linear rise from zero at the start
      cooldown=0,  # steps of a linear fall to zero before train.steps
      b1=0.9,  # AdamW: decay of the mean
      b2=0.999,  # AdamW: decay of the square
      eps=1e-8,  # AdamW: added to the root
      weight_decay=0.0,  # decoupled, on matrices only
      clip=1.0,  # largest global gradient norm; 0: no clipping
      label_smoothing=0.0,  # mass spread over the vocabulary
      z_loss=0.0,  # weight of log(Z)^2
      groups=(),  # ((regex of paths, factor on the rate), ...); 0 freezes
  ))

  config.train = ConfigDict(dict(
      steps=1000,  # optimiser updates
      batch_size=128,  # documents in a step, over all devices
      batch_tokens=0,  # instead: input tokens in a step, padding included;
                       # batch_size then only sets how many are sorted together
      accumulate=1,  # pieces of a batch, one after the other, for one update
      eval_every=1000,  # steps between evaluations; 0: only after the last
      checkpoint_every=1000,  # steps between checkpoints; 0: only the last
      log_every=10,  # steps between lines of metrics.jsonl
      remat='auto',  # what a layer keeps for the backward pass. 'none': all;
                     # 'pieces': 3 arrays of the input's size (LOCOST: and its
                     # kernels, up to 128 MiB), the rest made again piece by
                     # piece; 'full': 1, and the mixer made again
                     # too; 'auto': 'none' while short, else 'pieces'; no
                     # pieces where mesh.tensor cuts the layers
      dtype='float32',  # of matmuls and activations: 'float32' or 'bfloat16'
      seed=0,  # of the parameters and of dropout
      init_from='',  # a WORKDIR, checkpoint or Hugging Face directory, also of
                     # another model: parameters to begin with, what fits
      init_map=(),  # ((regex of our paths, path there; '': fresh), ...); ():
                    # the same path, if it means the same (warm_start.py)
      max_nonfinite_steps=0,  # steps with a non-finite loss before giving up
      timeout=1800,  # seconds of waiting that end the run, status 75; 0: none
  ))

  # Low-rank adapters, trained in place of all parameters but those that a row
  # of optim.groups gives a factor above 0 (locost_jax/lora.py).
  config.train.lora = ConfigDict(dict(
      rank=0,  # r of the adapters A [in, r] and B [r, out]; 0: there are none
      alpha=16.0,  # kernels become W + alpha / r A B
      paths=r'.*(attention|mixer)/(query|value)/kernel',  # regex: of which W
  ))

  config.eval = ConfigDict(dict(
      examples=500,  # first examples of the split; 0: all
      batch_size=32,  # documents evaluated at once, over all devices
      metrics=('loss', 'rouge'),  # what is measured
      baselines=False,  # also lead, best constant, unigram, exchanged inputs
  ))

  config.decode = ConfigDict(dict(
      method='',  # 'greedy', 'beam', 'sample'; '': what the others ask for
      max_length=512,  # most tokens written, eos included
      min_length=0,  # fewest tokens written, eos included
      no_repeat_ngram_size=0,  # n-grams written at most once; 0: no limit
      num_beams=1,  # texts continued side by side; above 1: beam search
      length_penalty=1.0,  # exponent of the length that beams are divided by
      length_penalty_form='hugging_face',  # or 'gnmt': ((5 + length) / 6)^p
      early_stopping=False,  # done with the first num_beams finished texts
      temperature=1.0,  # sampling: below 1 sharper, above 1 flatter
      top_k=0,  # sampling: from so many of the most probable; 0: all
      top_p=1.0,  # sampling: from the most probable with so much together
      seed=0,  # sampling: with the document it decides what is drawn
      forced_first_token=-1,  # the token every text begins with; -1: none
      forced_last_token=-1,  # the token at max_length; -1: none
  ))

  config.mesh = ConfigDict(dict(
      data=-1,  # devices over which a batch is split; -1: all that are left
      fsdp=1,  # devices over which batch and parameters are split
      tensor=1,  # devices over which a layer is split
      sequence=1,  # devices over which a document is split
  ))

  config.checkpoint = ConfigDict(dict(
      keep_latest=2,  # most recent checkpoints kept
      keep_best=1,  # best checkpoints kept
      metric='rouge_mean',  # by which the best is chosen; larger is better
  ))

  # ((name, {'train.steps': 100, ...}), ...): run in order in WORKDIR/name, each
  # from the best checkpoint of the one before.
  config.phases = ()
  # Locked: a key that is not here is an error where a config sets it.
  return config.lock()


def locost():
  """config.model of LOCOST, of the paper's size."""
  return ConfigDict(dict(
      name='locost',  # which model: a name in locost_jax/models/__init__.py
      **_t5_style(),
      d_state=256,  # N, complex state pairs per channel
      gating=True,  # multiply the mixer's output by a projection
      bidirectional=True,  # a kernel for each direction
      variant='release',  # 'release' or 'paper': where the two differ
      convolution='exact',  # 'release': its defect for lengths not 2^k
  ))


def t5():
  """config.model of T5 v1.1 base; v1.0 has 'relu', d_ff 3072, tied output."""
  return ConfigDict(dict(_t5_style(), name='t5', tie_embeddings=False))


def longt5():
  """config.model of LongT5 base with transient-global attention."""
  return ConfigDict(dict(
      _t5_style(),
      name='longt5',  # as above
      tie_embeddings=False,  # as T5 v1.1
      attention='transient-global',  # or 'local'
      local_radius=127,  # tokens to each side that a token attends to
      global_block_size=16,  # tokens of a block that has a token of its own
  ))


def bart():
  """config.model of BART base."""
  return ConfigDict(dict(
      name='bart',  # as above
      vocab_size=0,  # as above
      d_model=768,  # D, width of the residual stream
      d_ff=3072,  # F, width of the encoder's feed-forward
      decoder_d_ff=3072,  # width of the decoder's
      num_heads=12,  # H, attention heads, D / H wide
      num_layers=6,  # encoder layers
      num_decoder_layers=6,  # decoder layers
      feed_forward='gelu',  # the only one
      dropout_rate=0.1,  # on every branch and on the embeddings
      attention_dropout_rate=0.0,  # on attention's weights
      activation_dropout_rate=0.0,  # inside the feed-forward
      max_positions=1024,  # longest input and longest text written, in tokens
      scale_embedding=False,  # multiply embeddings by sqrt(D)
      pad_id=1,  # the vocabulary's
  ))


def _t5_style():
  """What LOCOST, T5 and LongT5 share, of base size."""
  return dict(
      vocab_size=0,  # rows of the embedding; 0: the vocabulary's size
      d_model=768,  # D, width of the residual stream
      d_ff=2048,  # F, width of the feed-forward
      d_kv=64,  # K, width of one attention head
      num_heads=12,  # H, attention heads
      num_layers=12,  # encoder layers
      num_decoder_layers=12,  # decoder layers
      feed_forward='gated-gelu',  # 'gated-gelu' or 'relu'
      dropout_rate=0.0,  # everywhere T5 has dropout
      tie_embeddings=True,  # the output layer is the embedding, scaled
      relative_attention_num_buckets=32,  # of a position bias
      relative_attention_max_distance=128,  # beyond it all distances are one
      layer_norm_epsilon=1e-6,  # inside the root of the RMS norm
  )
