"""Writes small PDFs: pages of lines, or of columns of lines."""

_UNICODE = (
    b'1 begincodespacerange <00> <ff> endcodespacerange 2 beginbfchar '
    b'<40> <D83DDE00> <23> <0000> endbfchar'
)


def make(pages, annotations=()):
  """Returns the bytes of a PDF.

  Args:
    pages: for each page a list of lines, or of (x, y, line) in points; or its
      operators, with '@' for an emoji and '#' for a glyph without Unicode.
    annotations: dictionaries of the annotations and fields of each page; with
      a field there is a form.
  """
  fields = ' '.join(annotations)
  form = f'/AcroForm << /Fields [{fields}] >>' * ('/Widget' in fields)
  objects = [f'<< /Type /Catalog /Pages 2 0 R {form} >>', None]
  objects.append(
      '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 4 0 R >>'
  )
  objects.append((f'<< /Length {len(_UNICODE)} >>', _UNICODE))
  kids = []
  for lines in pages:
    stream = lines.encode() if isinstance(lines, str) else _stream(lines)
    objects.append((f'<< /Length {len(stream)} >>', stream))
    kids.append(f'{len(objects) + 1} 0 R')
    objects.append(
        '<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources '
        f'<< /Font << /F1 3 0 R >> >> /Contents {len(objects)} 0 R '
        f'/Annots [{fields}] >>'
    )
  objects[1] = f'<< /Type /Pages /Kids [{" ".join(kids)}] /Count {len(kids)} >>'
  return assemble(objects)


def assemble(objects):
  """Returns a PDF of objects: str, or (dict, stream bytes); 1 is the root.

  It has no table of its objects: PDFium then looks for them.
  """
  data = b'%PDF-1.4\n'
  for number, item in enumerate(objects, start=1):
    data += f'{number} 0 obj\n'.encode()
    if isinstance(item, str):
      data += item.encode('latin-1')
    else:
      data += item[0].encode() + b'\nstream\n' + item[1] + b'\nendstream'
    data += b'\nendobj\n'
  return data + b'trailer << /Root 1 0 R >>\n%%EOF'


def _stream(lines):
  """Returns operators that draw lines, 14 points apart unless positioned."""
  parts = []
  for i, line in enumerate(lines):
    x, y, text = (72, 740 - 14 * i, line) if isinstance(line, str) else line
    for mark in '\\()':
      text = text.replace(mark, f'\\{mark}')
    parts.append(f'BT /F1 11 Tf {x} {y} Td ({text}) Tj ET')
  return '\n'.join(parts).encode('cp1252')
