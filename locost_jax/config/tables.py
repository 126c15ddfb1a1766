"""Aligns rows of cells as a table: the one printer of tables."""


def align(rows, left=(0,), least=0, gap='  '):
  """Returns rows of cells as lines, without spaces at their ends.

  Args:
    rows: lists of equally many texts; the last cell of a row may be missing.
    left: numbers of the left-aligned columns; the others are right-aligned.
    least: characters of a column, at least; an int, or one for each column.
    gap: between columns.
  """
  columns = max(map(len, rows), default=0)
  least = [least] * columns if isinstance(least, int) else least
  widths = [
      max(least[i], *(len(row[i]) for row in rows if i < len(row)))
      for i in range(columns)
  ]
  return [
      gap.join(
          f'{cell:{"<" if i in left else ">"}{widths[i]}}'
          for i, cell in enumerate(row)
      ).rstrip()
      for row in rows
  ]
