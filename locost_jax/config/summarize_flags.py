"""The flags of the summarize command: defaults, values and what --help says."""

from absl import flags

from locost_jax.config import commands
from locost_jax.config import decode_settings
from locost_jax.config import keys

# The options of decoding that are flags.
DECODING = {
    name: field
    for name, field in decode_settings.OPTIONS.items()
    if field.metadata['is_flag']
}
# Other flags by their types: {name: (default, what)}.
_TEXTS = {
    'checkpoint': (
        None,
        'DIR: a WORKDIR (its best checkpoint, or else the latest), a checkpoint '
        'in one, a Hugging Face directory, hf://org/name[@revision] on the '
        'Hugging Face Hub, or builtin:documentation, which comes with the '
        'package',
    ),
    'query_field': (
        'query',
        'FIELD: of a JSONL row, the field with the question; the field `queries` '
        'may have a list of questions',
    ),
    'input_field': (
        'document',
        'FIELD: of a JSONL row, the field with the document',
    ),
    'reference_field': (
        None,
        'FIELD: of a JSONL row, the field with the reference summary, or with a '
        'list of references; copied to the output, so that locost_jax.score can '
        'score the summaries',
    ),
    'prefix': (
        None,
        "TEXT: in front of every document, such as 'summarize: ' for a T5",
    ),
    'language': (
        None,
        "NAME: of mBART's token of the language that is read and written, such "
        "as ro_RO [the tokenizer's]",
    ),
    'empty_page': (
        None,
        'TEXT: the text of a page that has none; an empty TEXT leaves the page '
        'out [as trained]',
    ),
    'output': (
        None,
        'FILE: write the summaries here instead of to stdout, in the form of '
        'its ending: .txt, .json, .jsonl or .csv; they are in FILE.partial until '
        'all are written',
    ),
    'report': (
        None,
        'FILE.html: write a page that shows the passages that each sentence of '
        'the summary attended to, and the tokens that the model selected, if it '
        'selects tokens; for several documents it links to their pages, '
        'FILE-1.html, FILE-2.html, ...',
    ),
}
_NUMBERS = {
    'seed': (0, 'random seed of sampling'),
    'max_input_length': (
        None,
        'read only the first N tokens of a document [all]',
    ),
    'max_document_bytes': (
        None,
        'largest document in bytes: a file, after decompression, or a JSONL row '
        '[1 GiB, or an eighth of the free memory if that is less]',
    ),
    'part_length': (512, '--parts: maximum length of a part in tokens'),
    'summary_length': (
        0,
        '--parts: maximum length of the whole summary in tokens; 0: no limit',
    ),
    'batch_size': (
        None,
        'maximum number of documents per batch [as many as have 32768 tokens]',
    ),
    **{
        name: (None, f'{keys.DATA[name].text} [as trained]')
        for name in ('num_pages', 'page_length', 'document_length')
    },
}
_SWITCHES = {
    'ask_anyway': 'accept questions even if the model was trained without them',
    'overwrite': (
        'replace existing files of --output and --report; without it, only '
        'summaries that are missing from --output are written'
    ),
}
# {name: (default, {value: meaning}, what)}
CHOICES = {
    'pages': (
        None,
        {
            'spatial': 'pages of consecutive sentences',
            'discourse': 'a page for each section of a JSONL row',
            'document': 'a page for each document of a JSONL row',
            'chunks': 'chunks of --page_length tokens',
            'sentence_chunks': 'chunks of whole sentences',
        },
        'how to split a document into pages or chunks [as trained]',
    ),
    'parts': (
        None,
        {
            'join': 'print the summaries of all parts',
            'rank': 'print those in which the model is most confident',
            'hierarchical': 'summarise the summaries again, until one is left',
        },
        'summarise a document part by part; a part has as many paragraphs as fit '
        'into --part_length [the whole document at once]',
    ),
    'dtype': (
        'float32',
        dict.fromkeys(('float32', 'bfloat16'), ''),
        'type of matrix products and activations',
    ),
}


def define(values, argv):
  """Defines the flags; most of those not given are None."""
  del argv
  define = {
      bool: flags.DEFINE_boolean,
      int: flags.DEFINE_integer,
      float: flags.DEFINE_float,
  }
  for name, (default, text) in _TEXTS.items():
    flags.DEFINE_string(name, default, text, flag_values=values)
  for name, (default, text) in _NUMBERS.items():
    flags.DEFINE_integer(name, default, text, flag_values=values)
  for name, text in _SWITCHES.items():
    flags.DEFINE_boolean(name, False, text, flag_values=values)
  choices = dict(CHOICES)
  for name, field in DECODING.items():
    text, known = field.metadata['text'], field.metadata['choices']
    if known:
      choices[name] = None, dict.fromkeys(known, ''), text
    else:
      define[type(field.default)](name, None, text, flag_values=values)
  for name, (default, known, text) in choices.items():
    lines = [
        f'{value}: {meaning}' for value, meaning in known.items() if meaning
    ]
    text = '\n'.join((text, *lines))
    flags.DEFINE_enum(name, default, list(known), text, flag_values=values)
  flags.DEFINE_multi_string(
      'query',
      None,
      'TEXT: a question about each document; repeat the flag to ask several, '
      'each of which is answered from the whole document',
      flag_values=values,
  )
  flags.DEFINE_float(
      'memory_limit',
      None,
      'use at most N GiB of memory [all that is available]',
      lower_bound=0,
      flag_values=values,
  )
  commands.define_allow_download(values, 'checkpoint')
  commands.define_program_cache(values)
  commands.define_format(
      values,
      'text: one summary per line; json: one object per line, with the '
      'summary and everything that is needed to reproduce it; csv: a table of '
      'file, summary, tokens, and what was left out',
      ('csv',),
  )
