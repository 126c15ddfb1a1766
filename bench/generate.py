"""A whole model: reads documents and writes --tokens, next to PyTorch's.

Table 4 of LOCOST gives samples per second of whole models. The weights are
random, so exactly --tokens tokens are written, the end mark last.
"""

import numpy as np

from bench import programs


def prepare(spec):
  """Returns the call, see `programs`."""
  model, params = programs.make(spec)
  args = params, *programs.make_inputs(spec)
  encode = programs.compile_encoder(model, *args)
  memory = encode.out_info
  decode = programs.compile_writer(spec, model, params, memory)
  facts = dict(
      documents=spec['batch_size'],
      written=spec['tokens'],
      temp_bytes=max(map(programs.temp_bytes, (encode, decode))),
  )
  call = lambda: np.asarray(decode(params, encode(*args)))
  return {spec['part']: (call, facts)}
