"""Fields of lists in a row, such as `questions[].answer`.

A row {"document": ..., "questions": [{"text": ..., "answer": ...}, ...]} with
data.query_field='questions[].text' and data.target_field='questions[].answer'
becomes a row for each question. Its id is that of the row, and '#' and the
place in the list, counted from 0.
"""

from locost_jax.errors import InputError

MARK = '[].'


def list_of(fields):
  """Returns the name of the list that nested fields are in; None: no list.

  Args:
    fields: names of fields, nested or not.

  Raises:
    InputError: fields of two lists, or a list in a list.
  """
  nested = [field for field in fields if MARK in field]
  lists = {field.partition(MARK)[0] for field in nested}
  if len(lists) > 1 or any(field.count(MARK) > 1 for field in nested):
    raise InputError(
        f'config.data: {", ".join(nested)}: expected fields of one list, like '
        'questions[].text and questions[].answer'
    )
  return lists.pop() if lists else None


def expand(rows, fields, file):
  """Yields a row for each entry of the list.

  Args:
    fields: names of fields; those with '[].' are taken from the entries.
    file: the name of the file, for errors.

  Raises:
    InputError: the list is missing or has an entry of another form.
  """
  name = list_of(fields)
  nested = [field for field in fields if MARK in field]
  for number, row in enumerate(rows):
    entries = row.get(name)
    if not isinstance(entries, list):
      raise InputError(
          f'{file}, row {number}: field {name!r} must be a list of objects'
      )
    for i, entry in enumerate(entries):
      made = {**row, 'id': f'{row.get("id", f"{file}:{number}")}#{i}'}
      for field in nested:
        key = field.partition(MARK)[2]
        value = entry.get(key) if isinstance(entry, dict) else None
        if not isinstance(value, str):
          raise InputError(
              f'{file}, row {number}: {name}[{i}] must have a text in {key!r}'
          )
        made[field] = value
      yield made
