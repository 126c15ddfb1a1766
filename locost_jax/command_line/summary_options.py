"""The flags of summarize: how summaries are written, and what is read."""

from absl import flags

from locost_jax.generation import decode_settings

# The options of decoding that are flags.
_SETTINGS = {
    name: field
    for name, field in decode_settings.OPTIONS.items()
    if field.metadata['is_flag']
}

# The options of decoding that are flags.
SETTINGS = {
    name: field
    for name, field in decode_settings.OPTIONS.items()
    if field.metadata['is_flag']
}


def define_decoding(values):
  """Defines the options of decoding as flags; None: as trained."""
  for name, field in SETTINGS.items():
    text, least = field.metadata['text'], field.metadata['least']
    if field.metadata['choices']:
      flags.DEFINE_enum(
          name, None, list(field.metadata['choices']), text, flag_values=values
      )
    elif isinstance(field.default, bool):
      flags.DEFINE_boolean(name, None, text, flag_values=values)
    elif least is not None:
      flags.DEFINE_integer(
          name, None, text, lower_bound=least, flag_values=values
      )
    else:
      flags.DEFINE_float(name, None, text, flag_values=values)
  flags.DEFINE_integer(
      'seed', 0, 'of sampling', lower_bound=0, flag_values=values
  )


def define_documents(values):
  """Defines the flags of what is read of which documents."""
  flags.DEFINE_integer(
      'max_input_length',
      None,
      'tokens read of a document [all of them]',
      lower_bound=2,
      flag_values=values,
  )
  flags.DEFINE_multi_string(
      'query',
      None,
      'TEXT: a question about each document, which stands in front of it; '
      'several --query ask several questions, and the document is read for each',
      flag_values=values,
  )
  flags.DEFINE_string(
      'query_field',
      'query',
      'of JSONL rows: where their question is; `queries` is a list of several',
      flag_values=values,
  )
  flags.DEFINE_boolean(
      'ask_anyway',
      False,
      'ask a model that was trained without queries',
      flag_values=values,
  )
  flags.DEFINE_string(
      'input_field',
      'document',
      'of JSONL rows: where the document is',
      flag_values=values,
  )
  flags.DEFINE_string(
      'reference_field',
      None,
      'of JSONL rows: where the right summary is, or a list of all that are '
      'right; kept in the JSON rows, so that locost_jax.score can read them',
      flag_values=values,
  )
  flags.DEFINE_integer(
      'max_document_bytes',
      None,
      'most bytes of a document: of a file, of what a compressed file or a book '
      'unpacks to, of a row [1 GiB, or an eighth of the free memory]',
      lower_bound=1,
      flag_values=values,
  )


def define_pages(values, forms):
  """Defines how documents are cut into pages as flags; None: as trained.

  Args:
    values: where the flags go.
    forms: the values of --pages.
  """
  flags.DEFINE_enum(
      'pages',
      None,
      forms,
      'of a model that reads pages: sentences in order (spatial), the sections '
      'of a JSONL row (discourse), its documents (document); of one that reads '
      'chunks: cut wherever one is full (chunks), or between sentences '
      '(sentence_chunks) [as trained]',
      flag_values=values,
  )
  for name, least, text in (
      ('num_pages', 1, 'most pages of a document [as trained]'),
      ('page_length', 3, 'most tokens of a page or chunk [as trained]'),
      (
          'document_length',
          0,
          "tokens of a document that 'spatial' pages are made of; 0: all [as "
          'trained]',
      ),
  ):
    flags.DEFINE_integer(
        name, None, text, lower_bound=least, flag_values=values
    )
  flags.DEFINE_string(
      'empty_page',
      None,
      'text of a page without any; empty: the page is left out [as trained]',
      flag_values=values,
  )
