"""The flags of summarize for reading documents and for decoding."""

from absl import flags

from locost_jax.config import decode_settings

# The options of decoding that are flags.
SETTINGS = {
    name: field
    for name, field in decode_settings.OPTIONS.items()
    if field.metadata['is_flag']
}


def define_decoding(values):
  """Defines the options of decoding as flags; a flag not given is None."""
  define = {
      bool: flags.DEFINE_boolean,
      int: flags.DEFINE_integer,
      float: flags.DEFINE_float,
  }
  for name, field in SETTINGS.items():
    text, choices = field.metadata['text'], field.metadata['choices']
    if choices:
      flags.DEFINE_enum(name, None, list(choices), text, flag_values=values)
    else:
      define[type(field.default)](name, None, text, flag_values=values)
  flags.DEFINE_integer(
      'seed', 0, 'random seed of sampling', lower_bound=0, flag_values=values
  )


def define_documents(values):
  """Defines the flags for reading documents and questions."""
  flags.DEFINE_integer(
      'max_input_length',
      None,
      'read only the first N tokens of a document [all]',
      lower_bound=2,
      flag_values=values,
  )
  flags.DEFINE_multi_string(
      'query',
      None,
      'TEXT: a question about each document; repeat the flag to ask several, '
      'each of which is answered from the whole document',
      flag_values=values,
  )
  flags.DEFINE_string(
      'query_field',
      'query',
      'FIELD: of a JSONL row, the field with the question; the field `queries` '
      'may have a list of questions',
      flag_values=values,
  )
  flags.DEFINE_boolean(
      'ask_anyway',
      False,
      'accept questions even if the model was trained without them',
      flag_values=values,
  )
  flags.DEFINE_string(
      'input_field',
      'document',
      'FIELD: of a JSONL row, the field with the document',
      flag_values=values,
  )
  flags.DEFINE_string(
      'reference_field',
      None,
      'FIELD: of a JSONL row, the field with the reference summary, or with a '
      'list of references; copied to the output, so that locost_jax.score can '
      'score the summaries',
      flag_values=values,
  )
  flags.DEFINE_integer(
      'max_document_bytes',
      None,
      'largest document in bytes: a file, after decompression, or a JSONL row '
      '[1 GiB, or an eighth of the free memory if that is less]',
      lower_bound=1,
      flag_values=values,
  )


def define_pages(values, forms):
  """Defines the flags for splitting documents; a flag not given is None.

  Args:
    values: where the flags go.
    forms: the values of --pages.
  """
  flags.DEFINE_enum(
      'pages',
      None,
      forms,
      'how to split a document into pages or chunks [as trained]\n'
      'spatial: pages of consecutive sentences\n'
      'discourse: a page for each section of a JSONL row\n'
      'document: a page for each document of a JSONL row\n'
      'chunks: chunks of --page_length tokens\n'
      'sentence_chunks: chunks of whole sentences',
      flag_values=values,
  )
  for name, least, text in (
      ('num_pages', 1, 'maximum number of pages of a document [as trained]'),
      (
          'page_length',
          3,
          'maximum length of a page or chunk in tokens [as trained]',
      ),
      (
          'document_length',
          0,
          '--pages=spatial: split only the first N tokens of a document; '
          '0: all [as trained]',
      ),
  ):
    flags.DEFINE_integer(
        name, None, text, lower_bound=least, flag_values=values
    )
  flags.DEFINE_string(
      'empty_page',
      None,
      'TEXT: the text of a page that has none; an empty TEXT leaves the page '
      'out [as trained]',
      flag_values=values,
  )
