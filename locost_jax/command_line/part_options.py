"""The flags for summarising a document part by part."""

from absl import flags

from locost_jax.errors import InputError

FORMS = ('join', 'rank', 'hierarchical')
# Flags that cannot be used with --parts.
_OF_WHOLE_DOCUMENTS = ('max_input_length', 'report')
_HIERARCHICAL = 'hierarchical'


def define(values):
  """Defines --parts, --part_length and --summary_length."""
  flags.DEFINE_enum(
      'parts',
      None,
      FORMS,
      'summarise a document part by part; a part has as many paragraphs as fit '
      'into --part_length [the whole document at once]\n'
      'join: print the summaries of all parts\n'
      'rank: print those in which the model is most confident\n'
      'hierarchical: summarise the summaries again, until one is left',
      flag_values=values,
  )
  flags.DEFINE_integer(
      'part_length',
      512,
      '--parts: maximum length of a part in tokens',
      lower_bound=8,
      flag_values=values,
  )
  flags.DEFINE_integer(
      'summary_length',
      0,
      '--parts: maximum length of the whole summary in tokens; 0: no limit',
      lower_bound=0,
      flag_values=values,
  )


def check(values):
  """Raises an InputError for flags that do not go together."""
  if values.parts is None:
    for name in ('part_length', 'summary_length'):
      if values[name].present:
        raise InputError(f'--{name} needs --parts')
    return
  for name in _OF_WHOLE_DOCUMENTS:
    if name == 'report' and values.parts == _HIERARCHICAL:
      continue
    if values[name].value is not None:
      why = (
          'only --parts=hierarchical writes a page'
          if name == 'report'
          else '--parts reads the whole document'
      )
      raise InputError(
          f'--{name} and --parts={values.parts}: expected one of them; {why}'
      )
