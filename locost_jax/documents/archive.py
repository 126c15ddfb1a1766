"""Documents that are zip archives."""

import contextlib
import io
import zipfile

from locost_jax.errors import InputError


@contextlib.contextmanager
def open_archive(data, where, kind):
  """Opens an archive; whatever fails while it is read becomes one clear line.

  Args:
    where: name of the file, for error messages.
    kind: what it should be, such as 'EPUB'.

  Yields:
    zipfile.ZipFile.

  Raises:
    InputError: the archive, or the XML in it, is broken.
  """
  try:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
      yield archive
  except (InputError, MemoryError):
    raise
  except Exception as error:  # of zipfile, a decompressor, or the XML parser
    reason = ' '.join(str(error).strip('"\'').split()) or type(error).__name__
    raise InputError(f'{where}: a broken {kind}: {reason}') from None
