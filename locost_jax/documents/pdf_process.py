"""The process that reads a PDF: bytes on stdin, JSON on stdout.

PDFium is native code, and PDFs are untrusted: a crash ends only this process,
not the one that summarises. The output is one of

  {"pages": [[line, ...], ...]}
  {"error": "encrypted" or a reason}
  {"too_large": characters read so far}
"""

import json
import re
import resource
import sys

# PDFium's mark for a hyphen at the end of a line, where it drops the newline.
_CUT = re.compile('[\ufffe\x02](?:\r?\n)?')
_MEMORY = 2 << 30  # bytes of address space


def read(data, max_size):
  """Returns the dict described in the module's docstring.

  Args:
    data: bytes of the PDF.
    max_size: maximum characters of text; 0: no limit.
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
    if max_size and size > max_size:
      return {'too_large': size}
    lines = (' '.join(line.split()) for line in text.splitlines())
    pages.append([line for line in lines if line])
    page.close()
  return {'pages': pages}


if __name__ == '__main__':
  resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
  json.dump(read(sys.stdin.buffer.read(), int(sys.argv[1])), sys.stdout)
