"""Documents that are zip archives of XML: EPUB and Word.

They are untrusted: only the files that are read are unpacked, up to a size
limit of all of them together.
"""

import contextlib
import io
import posixpath
import unicodedata
from urllib import parse
import zipfile

from locost_jax.documents import places
from locost_jax.errors import InputError


class Archive:
  """A zip archive that is open for reading.

  Attributes:
    where: its name in error messages.
  """

  def __init__(self, file, where, max_bytes):
    self.where, self._file, self._max_bytes = where, file, max_bytes
    self._unpacked, self._names = 0, {}

  def __contains__(self, name):
    return name in self._file.NameToInfo

  def find(self, name):
    """Returns the name of a file that is spelt like this, or the name."""
    if name not in self:
      names = self._file.NameToInfo
      self._names = self._names or {_spelling(other): other for other in names}
    return name if name in self else self._names.get(_spelling(name), name)

  def resolve(self, name, link):
    """Returns the name of the file that a file links to."""
    path = posixpath.join('/', name.replace('\\', '/'), '..', link)
    return self.find(posixpath.normpath(path).lstrip('/'))

  def read(self, name):
    """Returns the bytes of a file; an InputError if they are too many."""
    # zipfile never unpacks more than `file_size` bytes.
    self._unpacked += self._file.getinfo(name).file_size
    places.check_size(f'{self.where}, {name}', self._unpacked, self._max_bytes)
    return self._file.read(name)


def _spelling(name):
  """Returns a name without case, composition, escapes and backslashes."""
  name = parse.unquote(name).replace('\\', '/')
  return unicodedata.normalize('NFC', name).casefold()


@contextlib.contextmanager
def open_archive(data, where, kind, max_bytes=None):
  """Opens an archive; whatever fails while it is read becomes one clear line.

  Args:
    where: name of the file, for error messages.
    kind: what it should be, such as 'EPUB'.
    max_bytes: limit of the unpacked size of what is read; None: no limit.

  Yields:
    Archive.

  Raises:
    InputError: the archive, or the XML in it, is broken.
  """
  try:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
      yield Archive(file, where, max_bytes)
  except (InputError, MemoryError):
    raise
  except Exception as error:  # of zipfile, a decompressor, or the XML parser
    reason = ' '.join(str(error).strip('"\'').split()) or type(error).__name__
    raise InputError(f'{where}: a broken {kind}: {reason}') from None
