"""Questions about documents: --query, and the queries of JSONL rows.

A question stands in front of the document, or of its pages, as in training. A
document with several questions is read once for each.
"""

from locost_jax.errors import InputError
from locost_jax.errors import visible


def of_row(where, row, field):
  """Returns the questions of a row: of its query field, or of `queries`.

  Args:
    where: what to call the row in an error.
    field: the name of the query field.

  Raises:
    InputError: both, or something else than texts.
  """
  one, several = row.get(field), row.get('queries')
  if one is not None and several is not None:
    raise InputError(
        f"{where}: has the fields {field!r} and 'queries'; expected one of them"
    )
  found = [] if one is None else [one]
  if several is not None:
    found = several
  if not isinstance(found, list) or not all(
      isinstance(query, str) for query in found
  ):
    raise InputError(
        f'{where}: expected a text in {field!r}, or a list of texts in '
        "'queries'"
    )
  return tuple(query.strip() for query in found if query.strip())


def check(queries):
  """Raises an InputError for a --query without text."""
  for query in queries or ():
    if not query.strip():
      raise InputError('--query is empty; expected a question')


def ask(documents, queries, trained, anyway, report):
  """Returns the documents with their questions, one Document for each.

  Args:
    queries: of --query; asked of every document.
    trained: whether the model was trained with queries; None: unknown.
    anyway: whether to ask a model that was not.
    report: called with a line for the user.

  Raises:
    InputError: --query with a model that was trained without queries, or with
      a row that has a query of its own.
  """
  own = sum(bool(document.queries) for document in documents)
  if queries and own:
    raise InputError(
        f'--query: {own} of the rows have a query of their own; expected '
        '--query or these'
    )
  if trained is False and queries and not anyway:
    raise InputError(
        '--query: this model was trained without queries; --ask_anyway asks it '
        'all the same'
    )
  asks = anyway or trained is not False
  if own and not asks:
    report(
        f'the queries of {own} rows are not read: this model was trained '
        'without queries; --ask_anyway asks it all the same'
    )
  asked = []
  for document in documents:
    found = (queries or document.queries) if asks else ()
    asked += [
        document._replace(query=query.strip()) for query in found or ('',)
    ]
  more = len(asked) - len(documents)
  if more:
    report(
        f'{len(asked):,} questions about {len(documents):,} '
        f'document{"" if len(documents) == 1 else "s"}: a document is read '
        'again for each question'
    )
  without = [document.id for document in asked if not document.query]
  if trained and without:
    report(
        f'{visible(without[0])}'
        + (f' and {len(without) - 1} more' if without[1:] else '')
        + ': no question, but this model was trained with queries; --query asks'
    )
  return asked
