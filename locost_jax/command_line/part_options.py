"""The flags of documents that are read part by part."""

from absl import flags

from locost_jax.errors import InputError

FORMS = ('join', 'rank', 'hierarchical')
# Flags that mean nothing if a document is read in parts.
_OF_WHOLE_DOCUMENTS = ('max_input_length', 'report')
_HIERARCHICAL = 'hierarchical'


def define(values):
  """Defines --parts, --part_length and --summary_length."""
  flags.DEFINE_enum(
      'parts',
      None,
      FORMS,
      'summarise a document part by part; a part is as many paragraphs as fit '
      'into --part_length. join: print the summaries of all parts; rank: those '
      'in which the model is most confident; hierarchical: summarise the '
      'summaries again, until one is left [read it whole]',
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
  if values.parts == _HIERARCHICAL and values.report and values.output:
    raise InputError(
        '--report and --output with --parts=hierarchical: expected one of them'
    )
  for name in _OF_WHOLE_DOCUMENTS:
    if name == 'report' and values.parts == _HIERARCHICAL:
      continue
    if values[name].value is not None:
      raise InputError(
          f'--{name} and --parts={values.parts}: expected one of them; parts '
          'are all of a document, and have no page'
      )
