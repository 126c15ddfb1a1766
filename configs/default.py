"""Every key of a run with its default. Other configs change what they need.

Start a config with `from configs import default`, then
`config = default.get_config()`. On the command line every key can be set:
`--config.model.d_model=256`.
"""

from ml_collections import ConfigDict

from locost_jax.generation import decode_settings

# Sizes of BART large, for `config.model.update`; those of base are in `bart`.
BART_LARGE = {
    'd_model': 1024,
    'd_ff': 4096,
    'decoder_d_ff': 4096,
    'num_heads': 16,
    'num_layers': 12,
    'num_decoder_layers': 12,
}
# Paths of the parameters that say how fast a LOCOST's channels forget and
# oscillate, for `config.optim.groups`.
TIME_SCALES = r'.*/ssm/(log_dt|log_A_real|A_imag)'


def get_config():
  """Returns the paper-size LOCOST on no data yet."""
  config = ConfigDict()

  config.model = locost()

  config.data = ConfigDict(
      dict(
          task='',  # a corpus or mixture: locost_jax/data/corpora.py, corpus.py
          # JSONL, CSV, TSV, parquet or text files instead of a task: names and
          # glob patterns, separated by commas.
          train_files='',
          validation_files='',  # likewise; '': 2% of the rows, by hash
          test_files='',  # likewise; '': no test split
          input_field='document',  # the field that is read
          target_field='summary',  # the field that is to be written
          query_field='',  # the field in front of it; '': `query`, if any
          references_field='',  # the list of references; '': `references`
          text_unit='file',  # .txt: a 'file', 'paragraph' or 'line' is a row
          targets_start='start_id',  # what a decoder reads first; 'bos': <s>
          vocabulary='train',  # T5's or BART's files, 'byte' or 'train'
          vocabulary_size=8000,  # tokens of a trained one, extra ids included
          max_input_length=4096,  # tokens kept of an input, eos included
          max_target_length=512,  # tokens kept of a target, eos included
          input_buckets=(),  # padded input lengths; (): 2^k and 1.5 * 2^k
          target_buckets=(),  # padded target lengths; (): likewise
          cache_dir='',  # where token caches are; '': WORKDIR/cache
          window_shards=8,  # shards shuffled together, of a large corpus
          corpora_dir='corpora',  # where data/prepare.py puts named corpora
          tfds_dir='',  # where TFDS keeps prepared data; '': its default
          check_sizes=True,  # refuse a corpus whose size differs from its paper's
          mixture_cap=100_000,  # most records of a task per epoch of a mixture
          train_examples=0,  # of each task, chosen by data.seed; 0: all
          # 'spatial', 'discourse', 'document': pages of PageSum; 'chunks',
          # 'sentence_chunks': chunks of SimCAS; '': one sequence.
          pages='',
          num_pages=7,  # pages of a document
          page_length=1024,  # tokens kept of a page or chunk, marks included
          empty_page='.',  # text of a page without any; '': nothing, masked
          query_in='',  # 'every' page (''), or the 'first', has the query
          document_length=0,  # spatial: tokens that become pages; 0: all
          seed=0,  # of the order of the examples
      )
  )

  # None: summarise (input_field -> target_field). Otherwise gap sentences from
  # input_field: ConfigDict(dict(ratio=0.2, strategy='independent', mask='',
  # seed=0)); data/gsg.py has the strategies.
  config.gsg = None
  # None, or the part of the documents of gap sentences that has T5's objective
  # instead: ConfigDict(dict(share=0.5, density=0.15, mean_length=3.0, seed=0));
  # data/span_corruption.py has it.
  config.span_corruption = None

  # Numbers of steps: a number strictly between 0 and 1 is a share of
  # train.steps.
  config.optim = ConfigDict(
      dict(
          name='adamw',  # 'adamw' or 'adafactor'
          schedule='constant',  # 'constant' or 'inverse_sqrt' (T5's)
          learning_rate=5e-4,  # the largest rate
          warmup_steps=0.0,  # steps of a linear rise from zero at the start
          flat_steps=0.0,  # inverse_sqrt: steps at learning_rate (T5's way)
          cooldown_steps=0.0,  # steps of a linear fall to zero at the end
          b1=0.9,  # AdamW: decay of the mean
          b2=0.999,  # AdamW: decay of the square
          eps=1e-8,  # AdamW: added to the root
          scale_by_parameter=True,  # Adafactor: updates relative to parameters
          weight_decay=0.0,  # decoupled, on matrices only
          clip=1.0,  # largest global gradient norm; 0: no clipping
          label_smoothing=0.0,  # mass spread over the vocabulary
          z_loss=0.0,  # weight of log(Z)^2
          groups=(),  # ((regex of paths, factor on the rate), ...); 0 freezes
      )
  )

  config.train = ConfigDict(
      dict(
          # 'likelihood' of the targets; 'simcas': also rewards of the selector,
          # by config.selector (locost_jax/training/objectives.py).
          objective='likelihood',
          steps=1000,  # optimiser updates
          batch_size=128,  # documents in a step, over all devices
          # Input tokens in a step, padding included, instead of batch_size,
          # which then says how many are sorted together; 0: batch_size counts.
          batch_tokens=0,
          accumulate=1,  # pieces of a batch, one after the other, per update
          eval_every=1000,  # steps between evaluations; 0: only after the last
          checkpoint_every=1000,  # steps between checkpoints; 0: only the last
          # Stop the run, or the phase, when this many evaluations in a row do
          # not reach the best one (checkpoint.metric); 0: never.
          patience=0,
          log_every=10,  # steps between lines of metrics.jsonl
          # What a layer keeps for the backward pass. 'none': everything;
          # 'pieces': 3 arrays of the input's size (LOCOST: and its kernels, up
          # to 128 MiB), the rest is computed again, piece by piece; 'full': 1
          # array, the mixer is computed again too; 'auto': 'none' while inputs
          # are short, else 'pieces' (not if mesh.tensor cuts the layers).
          remat='auto',
          dtype='float32',  # of matmuls and activations: 'float32', 'bfloat16'
          seed=0,  # of the parameters and of dropout
          # A WORKDIR, a checkpoint, a Hugging Face directory or
          # hf://org/name[@revision] on its Hub, also of another model; the
          # parameters that fit are taken. '': new parameters.
          init_from='',
          # ((regex of our paths, path there; '': new), ...); (): the same paths,
          # if they mean the same (locost_jax/training/warm_start.py).
          init_map=(),
          max_nonfinite_steps=0,  # steps without a finite loss to skip
          timeout=1800,  # end the run after this many seconds of waiting; 0: never
      )
  )

  # Low-rank adapters, trained in place of all parameters but those that a row
  # of optim.groups gives a factor above 0 (locost_jax/models/lora.py).
  config.train.lora = ConfigDict(
      dict(
          rank=0,  # r of the adapters A [in, r] and B [r, out]; 0: none
          alpha=16.0,  # a kernel becomes W + alpha / r A B
          # A regex of the kernels W that get adapters.
          paths=r'.*(attention|mixer)/(query|value)/kernel',
      )
  )

  # train.objective='simcas': how SimCAS's selector learns, by PPO
  # (locost_jax/training/ppo.py has the equations).
  config.selector = ConfigDict(
      dict(
          every=50,  # updates of the other parameters per turn of the selector
          epochs=2,  # passes over the chunks in a turn
          minibatch=512,  # tokens of a chunk in an update
          learning_rate=1e-4,  # Adam's, constant
          gamma=0.998,  # discount of a chunk
          clip=0.2,  # of probability ratios, and of values
          entropy=0.1,  # weight of the entropy bonus
          kl=0.1,  # stop a turn after an epoch that moved further than this
          limit=2048,  # selected tokens above which skipping is worth more
          reward_scale=1e4,  # reward of a summary of probability 1
          skip='release',  # reward of skipped tokens: 'release' or 'paper'
          # Of the next chunk's advantages: that at the same 'position', their
          # 'mean', or 'none'.
          trace='position',
          baseline='critic',  # 'mean': of the chunk's rewards, no critic
          **{'lambda': 0.95},  # decay of the trace
      )
  )

  config.eval = ConfigDict(
      dict(
          examples=500,  # first examples of the split, while training; 0: all
          batch_size=32,  # documents evaluated at once, over all devices
          metrics=('loss', 'rouge', 'recall'),  # 'loss', 'rouge', 'recall'
          baselines=False,  # also score baselines and the model before training
      )
  )

  # locost_jax/generation/decode_settings.py explains each option.
  config.decode = ConfigDict(
      dict(
          **decode_settings.defaults(),
          seed=0,  # sampling: with the document it decides what is drawn
      )
  )

  config.mesh = ConfigDict(
      dict(
          data=-1,  # devices over which a batch is split; -1: all that are left
          fsdp=1,  # devices over which batch and parameters are split
          tensor=1,  # devices over which a layer is split
          sequence=1,  # devices over which a document is split
      )
  )

  config.checkpoint = ConfigDict(
      dict(
          keep_latest=2,  # most recent checkpoints kept
          keep_best=1,  # best checkpoints kept
          # By which the best is chosen; 'auto': the loss if an evaluation
          # measures fewer than 500 documents, else rouge_mean.
          metric='auto',
      )
  )

  # ((name, {'train.steps': 100, ...}), ...): run in order in WORKDIR/name, each
  # from the best checkpoint of the one before.
  config.phases = ()
  # Locked: a key that is not here is an error where a config sets it.
  return config.lock()


def locost():
  """config.model of LOCOST, of the paper's size."""
  return ConfigDict(
      dict(
          name='locost',  # which model: a name in locost_jax/models/__init__.py
          **_t5_style(),
          d_state=256,  # N, complex state pairs per channel
          gating=True,  # multiply the mixer's output by a projection
          bidirectional=True,  # a kernel for each direction
          variant='release',  # 'release' or 'paper': where the two differ
          convolution='exact',  # 'release': its defect for lengths not 2^k
          initialisation='s4d-lin',  # of A: a function of ops/ssm.py
          # The first dt are log-uniform from dt_min to dt_max; a channel
          # remembers about 2 / dt tokens.
          dt_min=0.001,
          dt_max=0.1,  # see dt_min
      )
  )


def t5():
  """config.model of T5 v1.1 base; v1.0 has 'relu', d_ff 3072, tied output."""
  return ConfigDict(dict(_t5_style(), name='t5', tie_embeddings=False))


def longt5():
  """config.model of LongT5 base with transient-global attention."""
  return ConfigDict(
      dict(
          _t5_style(),
          name='longt5',  # as above
          tie_embeddings=False,  # as T5 v1.1
          attention='transient-global',  # or 'local'
          local_radius=127,  # tokens to each side that a token attends to
          global_block_size=16,  # tokens of a block that has a token of its own
      )
  )


def bart():
  """config.model of BART base."""
  return ConfigDict(
      dict(
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
          max_positions=1024,  # longest input and longest text, in tokens
          scale_embedding=False,  # multiply embeddings by sqrt(D)
          pad_id=1,  # the id of padding in the vocabulary
          num_decoder_heads=0,  # attention heads of the decoder; 0: num_heads
          copy=False,  # as in LOCOST
          copy_dim=64,  # as in LOCOST
          copy_ngram=0,  # as in LOCOST
      )
  )


def pagesum():
  """Returns the default `config.model` of PageSum, which reads pages."""
  config = bart()
  config.name = 'pagesum'
  config.update(
      dict(
          decoding='pages',  # or 'global': one decoder reads all pages
          padding='tokens',  # empty pages weigh 0; 'release': they count
      )
  )
  return config


def simcas():
  """Returns the default `config.model` of SimCAS, which reads chunks."""
  config = bart()
  config.name = 'simcas'
  config.update(
      dict(
          # 'many' chunks of a document, or 'one': its first max_positions
          # tokens alone, with data.pages='' (an ablation).
          chunk='many',
          # Start and end states between layers: 'shift', 'mean' (its paper) or
          # 'none'.
          align='shift',
          # The decoder reads what the selector chooses ('ppo'), the first
          # `limit` tokens ('first_k') or everything ('none').
          select='ppo',
          selection='sample',  # how the selector chooses; or 'argmax'
          limit=2048,  # first_k: tokens of a document
          # 'release': padding before an end mark is read too; 'tokens': not.
          padding='release',
      )
  )
  return config


def simcas_locost():
  """config.model of LOCOST's encoder and decoder, SimCAS's selector between."""
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
  """Returns the keys that LOCOST, T5 and LongT5 share, of base size."""
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
      copy=False,  # copy words of the input: locost_jax/models/copy_head.py
      copy_dim=64,  # width of the copy head's queries and keys
      copy_ngram=0,  # longest n-gram that it goes on with; 0: none
  )
