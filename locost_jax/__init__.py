"""locost_jax: summarising documents that are far too long for a transformer.

The public face is `load` (a directory -> a `Summarizer`). Importing this
package touches no device and no TensorFlow.
"""

__version__ = '0.1.0'


def __getattr__(name):
  """Imports the public names on first use, so that importing stays instant."""
  if name in ('load', 'Summarizer'):
    from locost_jax.summarizing import pretrained

    return getattr(pretrained, name)
  if name == 'pipeline':
    from locost_jax.summarizing import summarization_pipeline

    return summarization_pipeline.pipeline
  raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
