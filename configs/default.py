"""All config keys with their defaults; other configs change some of them.

Start a config with `from configs import default`, then
`config = default.get_config()`. The command line can set every key:
`--config.model.d_model=256`.
"""

from ml_collections import ConfigDict

from locost_jax.generation import decode_settings

# Sizes of BART large, for `config.model.update`; `bart` has those of base.
BART_LARGE = {
    'd_model': 1024,
    'd_ff': 4096,
    'decoder_d_ff': 4096,
    'num_heads': 16,
    'num_layers': 12,
    'num_decoder_layers': 12,
}
# Regex of the parameters that set how fast LOCOST's channels decay and
# oscillate, for `config.optim.groups`.
TIME_SCALES = r'.*/ssm/(log_dt|log_A_real|A_imag)'


def get_config():
  """Returns the default config: LOCOST in the paper's size, without data."""
  config = ConfigDict()

  config.model = locost()

  config.data = ConfigDict(
      dict(
          # A corpus or mixture of locost_jax/data/corpora.py, or '' for files.
          task='',
          # Instead of a task: JSONL, CSV, TSV, parquet or text files; names and
          # glob patterns, separated by commas.
          train_files='',
          validation_files='',  # files; '': 2% of the training rows, by hash
          test_files='',  # files; '': no test split
          input_field='document',  # the field with the input
          target_field='summary',  # the field with the target
          # The field with a query, which is put in front of the input; '':
          # `query`, if a row has it.
          query_field='',
          # The field with a list of references; '': `references`.
          references_field='',
          text_unit='file',  # .txt: a row is a 'file', 'paragraph' or 'line'
          # The first token that the decoder reads: the vocabulary's 'start_id',
          # or 'bos' (<s>).
          targets_start='start_id',
          # A directory or file of T5's or BART's vocabulary, 'byte', or 'train'
          # to train one on the data.
          vocabulary='train',
          vocabulary_size=8000,  # tokens of a trained vocabulary, with extra ids
          max_input_length=4096,  # maximum tokens of an input, with eos
          max_target_length=512,  # maximum tokens of a target, with eos
          input_buckets=(),  # padded input lengths; (): 2^k and 1.5 * 2^k
          target_buckets=(),  # padded target lengths; (): 2^k and 1.5 * 2^k
          cache_dir='',  # directory of token caches; '': WORKDIR/cache
          window_shards=8,  # large corpora: number of shards shuffled together
          corpora_dir='corpora',  # directory that papers/prepare.py writes to
          tfds_dir='',  # directory of TFDS's data; '': its default
          check_sizes=True,  # refuse a corpus whose size differs from its paper's
          # Mixtures: a task's weight is its number of records, but at most this.
          mixture_cap=100_000,
          # Number of training examples per task, chosen by data.seed; 0: all.
          train_examples=0,
          # How to split documents. PageSum: 'spatial', 'discourse' or
          # 'document' pages; SimCAS: 'chunks' or 'sentence_chunks'; '': not.
          pages='',
          num_pages=7,  # maximum number of pages of a document
          page_length=1024,  # maximum tokens of a page or chunk, with marks
          empty_page='.',  # text of a page that has none; '': mask the page
          query_in='',  # the query begins 'every' page ('') or only the 'first'
          # Spatial pages: split only this many first tokens; 0: all.
          document_length=0,
          seed=0,  # random seed of the order of examples
      )
  )

  # Pretraining on gap sentences of input_field (locost_jax/data/gsg.py):
  # ConfigDict(dict(ratio=0.2, strategy='independent', mask='', seed=0)); None:
  # train on input_field -> target_field.
  config.gsg = None
  # With gsg: train on T5's span corruption in a share of the documents
  # (locost_jax/data/span_corruption.py): ConfigDict(dict(share=0.5,
  # density=0.15, mean_length=3.0, seed=0)); None: in no document.
  config.span_corruption = None

  # A number of steps strictly between 0 and 1 is a share of train.steps.
  config.optim = ConfigDict(
      dict(
          name='adamw',  # 'adamw' or 'adafactor'
          schedule='constant',  # 'constant' or 'inverse_sqrt' (T5's)
          learning_rate=5e-4,  # peak learning rate
          warmup_steps=0.0,  # steps of linear warmup from zero
          flat_steps=0.0,  # inverse_sqrt: first steps at learning_rate (T5's)
          cooldown_steps=0.0,  # last steps, of linear decay to zero
          b1=0.9,  # AdamW: decay of the mean gradient
          b2=0.999,  # AdamW: decay of the mean squared gradient
          eps=1e-8,  # AdamW: added to the root of the squared gradient
          scale_by_parameter=True,  # Adafactor: updates relative to parameters
          weight_decay=0.0,  # decoupled, on matrices only
          clip=1.0,  # maximum global gradient norm; 0: no clipping
          label_smoothing=0.0,  # probability spread over the vocabulary
          z_loss=0.0,  # weight of log(Z)^2 in the loss
          # Factors on the learning rate, ((regex of parameter paths, factor),
          # ...); 0 freezes parameters.
          groups=(),
      )
  )

  config.train = ConfigDict(
      dict(
          # 'likelihood' of the targets, or 'simcas', which also trains the
          # selector (locost_jax/training/objectives.py).
          objective='likelihood',
          steps=1000,  # number of optimiser updates
          batch_size=128,  # documents per step, over all devices
          # Input tokens per step with padding, instead of batch_size; documents
          # are then sorted by length in groups of batch_size. 0: not used.
          batch_tokens=0,
          accumulate=1,  # gradient accumulation: parts of a batch per update
          eval_every=1000,  # steps between evaluations; 0: only after the last
          checkpoint_every=1000,  # steps between checkpoints; 0: only the last
          # Stop the run or phase after this many evaluations in a row that do
          # not improve checkpoint.metric; 0: never.
          patience=0,
          log_every=10,  # steps between lines of metrics.jsonl
          # Activations that a layer keeps for the backward pass. 'none': all;
          # 'pieces': 3 arrays of the input's size (LOCOST: and its kernels, up
          # to 128 MiB), the rest is recomputed piece by piece; 'full': 1 array,
          # everything is recomputed; 'auto': 'none' for short inputs, else
          # 'pieces' (not if mesh.tensor splits the layers).
          remat='auto',
          # Type of matrix products and activations: 'float32' or 'bfloat16'.
          dtype='float32',
          seed=0,  # random seed of the parameters and of dropout
          # Start from the parameters of a WORKDIR, a checkpoint, a Hugging Face
          # directory or hf://org/name[@revision] on its Hub. Another model is
          # possible: parameters that fit are copied. '': new parameters.
          init_from='',
          # With init_from: ((regex of parameter paths, path in the source),
          # ...); the path '' keeps new parameters. (): equal paths with the
          # same meaning (locost_jax/training/warm_start.py).
          init_map=(),
          # Skip up to this many steps whose loss is not finite.
          max_nonfinite_steps=0,
          # Stop a run that waits for longer than this many seconds; 0: never.
          timeout=1800,
      )
  )

  # Low-rank adapters (locost_jax/models/lora.py). Other parameters are frozen,
  # unless a row of optim.groups gives them a factor above 0.
  config.train.lora = ConfigDict(
      dict(
          rank=0,  # r of the adapters A [in, r] and B [r, out]; 0: no adapters
          alpha=16.0,  # a kernel W becomes W + alpha / r A B
          # Regex of the kernels that get adapters.
          paths=r'.*(attention|mixer)/(query|value)/kernel',
      )
  )

  # train.objective='simcas': PPO for SimCAS's selector (equations:
  # locost_jax/training/ppo.py).
  config.selector = ConfigDict(
      dict(
          # The selector is trained once per this many updates of the others.
          every=50,
          epochs=2,  # passes over the chunks each time
          minibatch=512,  # tokens of a chunk per update
          learning_rate=1e-4,  # constant learning rate of Adam
          gamma=0.998,  # discount per chunk
          clip=0.2,  # clipping of probability ratios and of values
          entropy=0.1,  # weight of the entropy bonus
          kl=0.1,  # stop after an epoch whose KL divergence is above this
          limit=2048,  # reward skipping more if more tokens are selected
          reward_scale=1e4,  # reward of a summary of probability 1
          skip='release',  # reward of skipped tokens, of 'release' or 'paper'
          # Advantages of the next chunk to propagate: the one at the same
          # 'position', their 'mean', or 'none'.
          trace='position',
          # Baseline of the rewards: a 'critic', or the 'mean' of the chunk.
          baseline='critic',
          **{'lambda': 0.95},  # lambda of generalised advantage estimation
      )
  )

  config.eval = ConfigDict(
      dict(
          # During training, use only this many first examples; 0: all.
          examples=500,
          batch_size=32,  # documents per batch, over all devices
          metrics=('loss', 'rouge', 'recall'),  # any of these three
          # How ROUGE is computed, and the words of the other metrics: a
          # protocol of docs/evaluation.md. 'auto': 'unicode' if a-z and 0-9
          # cover less than half of the references' letters, else 'locost'.
          protocol='auto',
          baselines=False,  # also score baselines and the model before training
      )
  )

  # locost_jax/generation/decode_settings.py explains each option.
  config.decode = ConfigDict(
      dict(
          **decode_settings.defaults(),
          seed=0,  # random seed of sampling, combined with the document
      )
  )

  config.mesh = ConfigDict(
      dict(
          data=-1,  # number of devices that split the batch; -1: the rest
          fsdp=1,  # number of devices that split batch and parameters
          tensor=1,  # number of devices that split each layer
          sequence=1,  # number of devices that split each document
      )
  )

  config.checkpoint = ConfigDict(
      dict(
          keep_latest=2,  # number of latest checkpoints to keep
          keep_best=1,  # number of best checkpoints to keep
          # The metric of the best checkpoint; 'auto': the loss if an evaluation
          # has fewer than 500 documents, else rouge_mean.
          metric='auto',
      )
  )

  # ((name, {'train.steps': 100, ...}), ...): phases with changed keys. They run
  # in order in WORKDIR/name, each from the best checkpoint of the previous one.
  config.phases = ()
  # Locked, so that a config cannot set an unknown key.
  return config.lock()


def locost():
  """Returns config.model of LOCOST in the paper's size."""
  return ConfigDict(
      dict(
          name='locost',  # a model of locost_jax/models/__init__.py
          **_t5_style(),
          d_state=256,  # N, complex state pairs per channel
          gating=True,  # multiply the mixer's output by a projection
          bidirectional=True,  # use one kernel per direction
          # Follow the 'release' or the 'paper' where the two differ.
          variant='release',
          # 'exact', or 'release' with its defect for lengths that are not 2^k.
          convolution='exact',
          initialisation='s4d-lin',  # initial A, see ops/ssm.py
          # Smallest initial dt, which is log-uniform up to dt_max; a channel
          # remembers about 2 / dt tokens.
          dt_min=0.001,
          dt_max=0.1,  # largest initial dt
      )
  )


def t5():
  """Returns config.model of T5 v1.1 base.

  v1.0 has feed_forward='relu', d_ff=3072 and tie_embeddings=True.
  """
  return ConfigDict(dict(_t5_style(), name='t5', tie_embeddings=False))


def longt5():
  """Returns config.model of LongT5 base with transient-global attention."""
  return ConfigDict(
      dict(
          _t5_style(),
          name='longt5',  # as above
          tie_embeddings=False,  # the output layer is the embedding (T5 v1.0)
          attention='transient-global',  # 'transient-global' or 'local'
          local_radius=127,  # tokens on each side that a token attends to
          global_block_size=16,  # tokens per global token
      )
  )


def bart():
  """Returns config.model of BART base."""
  return ConfigDict(
      dict(
          name='bart',  # as above
          vocab_size=0,  # as above
          d_model=768,  # D, width of the residual stream
          d_ff=3072,  # F, width of the encoder's feed-forward
          decoder_d_ff=3072,  # width of the decoder's feed-forward
          num_heads=12,  # H, attention heads, D / H wide
          num_layers=6,  # encoder layers
          num_decoder_layers=6,  # decoder layers
          feed_forward='gelu',  # the only choice
          dropout_rate=0.1,  # dropout of every branch and of the embeddings
          attention_dropout_rate=0.0,  # dropout of attention weights
          activation_dropout_rate=0.0,  # dropout inside the feed-forward
          max_positions=1024,  # maximum tokens of an input and of a summary
          scale_embedding=False,  # multiply embeddings by sqrt(D)
          pad_id=1,  # the id of padding in the vocabulary
          num_decoder_heads=0,  # attention heads of the decoder; 0: num_heads
          copy=False,  # as in LOCOST
          copy_dim=64,  # as in LOCOST
          copy_ngram=0,  # as in LOCOST
      )
  )


def pagesum():
  """Returns config.model of PageSum, which reads pages."""
  config = bart()
  config.name = 'pagesum'
  config.update(
      dict(
          # 'pages': decode each page and mix the outputs, or 'global': one
          # decoder reads all pages.
          decoding='pages',
          # 'tokens': ignore empty pages, or 'release': they count.
          padding='tokens',
      )
  )
  return config


def simcas():
  """Returns config.model of SimCAS, which reads chunks."""
  config = bart()
  config.name = 'simcas'
  config.update(
      dict(
          # 'many' chunks of a document, or 'one': its first max_positions
          # tokens alone, with data.pages='' (an ablation).
          chunk='many',
          # How chunks exchange start and end states between layers: 'shift',
          # 'mean' (the paper) or 'none'.
          align='shift',
          # The decoder reads what the selector chooses ('ppo'), the first
          # `limit` tokens ('first_k') or everything ('none').
          select='ppo',
          selection='sample',  # how the selector chooses; or 'argmax'
          limit=2048,  # first_k: tokens of a document
          # 'release': padding before an end mark counts as tokens; 'tokens': it
          # does not.
          padding='release',
      )
  )
  return config


def simcas_locost():
  """Returns config.model of LOCOST with SimCAS's selector before the decoder."""
  config = locost()
  config.name = 'simcas_locost'
  config.update(
      dict(
          # The decoder reads what the selector chooses ('ppo'), the first
          # `limit` tokens ('first_k') or everything ('none').
          select='ppo',
          selection='sample',  # how the selector chooses; or 'argmax'
          limit=2048,  # first_k: tokens of a document
          chunk_length=512,  # tokens that the selector sees at a time
      )
  )
  return config


def _t5_style():
  """Returns the keys that LOCOST, T5 and LongT5 share, in base size."""
  return dict(
      vocab_size=0,  # rows of the embedding; 0: size of the vocabulary
      d_model=768,  # D, width of the residual stream
      d_ff=2048,  # F, width of the feed-forward
      d_kv=64,  # K, width of one attention head
      num_heads=12,  # H, attention heads
      num_layers=12,  # encoder layers
      num_decoder_layers=12,  # decoder layers
      feed_forward='gated-gelu',  # 'gated-gelu' or 'relu'
      dropout_rate=0.0,  # dropout in the same places as in T5
      tie_embeddings=True,  # the output layer is the embedding, scaled
      relative_attention_num_buckets=32,  # buckets of the position bias
      relative_attention_max_distance=128,  # larger distances share a bucket
      layer_norm_epsilon=1e-6,  # inside the root of the RMS norm
      copy=False,  # copy words of the input (locost_jax/models/copy_head.py)
      copy_dim=64,  # width of the copy head's queries and keys
      copy_ngram=0,  # longest n-gram that the copy head continues; 0: off
  )
