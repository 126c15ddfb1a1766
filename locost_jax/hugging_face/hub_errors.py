"""One line for each reason why a model on the Hub cannot be had."""

from locost_jax.errors import InputError

# huggingface_hub's HTTP client is another package in each of its major
# versions.
_CLIENTS = ('httpx', 'httpx2', 'httpcore', 'httpcore2', 'requests', 'urllib3')


def is_unreachable(error):
  """Returns whether the Hub gave no answer, or one of its own failure."""
  status = _status(error)
  if status is not None:
    return status >= 500 or status in (408, 429)
  return _is_of_network(error)


def explain(error, title, repository):
  """Returns the InputError for an exception of huggingface_hub.

  Args:
    error: the exception.
    title: hf://org/name@revision.
    repository: org/name.

  Returns:
    An InputError, or None for an exception that is no failure of the network,
    the Hub or the name: a bug.
  """
  from huggingface_hub import constants
  from huggingface_hub import errors

  page = f'https://huggingface.co/{repository}'
  status = _status(error)
  if isinstance(error, errors.GatedRepoError):  # a RepositoryNotFoundError too
    text = (
        f'access to this model is restricted: accept its terms at {page}, '
        'then log in with `hf auth login`'
    )
  elif isinstance(error, errors.RevisionNotFoundError):
    text = 'the model has no branch, tag or commit of this name'
  elif isinstance(error, errors.RepositoryNotFoundError):
    text = (
        'the Hub has no model of this name, or it is private: check the name, '
        'or log in with `hf auth login`'
    )
  elif status in (401, 403):
    text = (
        f'the Hub refused the login ({status}): log in again with '
        '`hf auth login`'
    )
  elif status is not None:
    text = f'the Hub answered {status}: try again later'
  elif isinstance(error, OSError) and error.filename:
    text = f'{error.filename}: {error.strerror}'
  elif _is_of_network(error):
    text = (
        f'no answer from {constants.ENDPOINT}: without a network, download '
        f'{page} by hand into DIR and pass DIR ({_reason(error)})'
    )
  elif isinstance(error, ValueError):
    text = f"the Hub's answer cannot be read ({_reason(error)})"
  else:
    return None
  return InputError(f'{title}: {text}')


def _status(error):
  """Returns the HTTP status of an answer, or None if there was no answer."""
  response = getattr(error, 'response', None)
  return getattr(response, 'status_code', None)


def _is_of_network(error):
  if isinstance(error, OSError):
    return not error.filename
  return type(error).__module__.split('.')[0] in _CLIENTS


def _reason(error):
  return (str(error).strip() or type(error).__name__).split('\n')[0]
