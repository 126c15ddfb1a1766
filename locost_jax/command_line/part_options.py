"""The flags of documents that are read part by part."""

from absl import flags

from locost_jax.errors import InputError

FORMS = ('join', 'rank')
# Flags that mean nothing where a document is read in parts.
_OF_WHOLE_DOCUMENTS = ('max_input_length', 'report')


def define(values):
  """Defines --parts, --part_length and --summary_length."""
  flags.DEFINE_enum(
      'parts',
      None,
      FORMS,
      'read a document part by part, paragraphs that fit into --part_length, '
      'and summarise each: join: the summaries of all parts; rank: those that '
      'the model is most sure of [read it whole]',
      flag_values=values,
  )
  flags.DEFINE_integer(
      'part_length',
      512,
      '--parts: most tokens of a part',
      lower_bound=8,
      flag_values=values,
  )
  flags.DEFINE_integer(
      'summary_length',
      0,
      '--parts: most tokens of the summary of all parts; 0: any number',
      lower_bound=0,
      flag_values=values,
  )


def check(values):
  """Raises an InputError for flags that do not go together."""
  if values.parts is None:
    for name in ('part_length', 'summary_length'):
      if values[name].present:
        raise InputError(f'--{name} belongs to --parts')
    return
  for name in _OF_WHOLE_DOCUMENTS:
    if values[name].value is not None:
      raise InputError(
          f'--{name} and --parts={values.parts}: expected one of them; parts '
          'are all of a document, and have no page'
      )
