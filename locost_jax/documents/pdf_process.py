"""The process that reads a PDF: bytes on stdin, JSON on stdout.

PDFium is native code, and a PDF may come from anywhere: what goes wrong in it
ends this process and not the one that summarises.

  {"pages": [[line, ...], ...]}, or {"error": 'encrypted' or a reason}
"""

import json
import re
import resource
import sys

# A word that is cut at the end of a line; PDFium drops the line's end.
_CUT = re.compile('[\ufffe\x02](?:\r?\n)?')
_MEMORY = 4 << 30  # bytes of address space


def read(data, most):
  """Returns the object of the module's docstring.

  Args:
    data: bytes of the PDF.
    most: bytes of text that it may have; 0: any number.
  """
  import pypdfium2

  try:
    document = pypdfium2.PdfDocument(data)
  except pypdfium2.PdfiumError as error:
    is_password = 'password' in str(error).lower()
    return {'error': 'encrypted' if is_password else 'PDFium cannot load it'}
  pages, size = [], 0
  for page in document:
    text = page.get_textpage().get_text_bounded()
    text = _CUT.sub('-\n', text)
    size += len(text)
    if most and size > most:
      return {'too_large': size}
    lines = (' '.join(line.split()) for line in text.splitlines())
    pages.append([line for line in lines if line])
    page.close()
  return {'pages': pages}


if __name__ == '__main__':
  resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
  json.dump(read(sys.stdin.buffer.read(), int(sys.argv[1])), sys.stdout)
