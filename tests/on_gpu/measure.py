"""Speed and memory of base models in bfloat16, measured as `bench` does."""

import functools

from bench import programs
from bench import rounds
from bench import workers
from configs import default
from locost_jax.devices import memory
from tests.on_gpu import job as job_lib

VOCABULARY = 32_100  # the paper's
SIZES = dict(vocab_size=60, d_model=32, d_ff=64, d_kv=8, num_heads=4)
SIZES |= dict(num_layers=2, num_decoder_layers=2)
SECONDS = 20.0  # no round of a measurement starts after these


def make_spec(job, question):
  """Returns the spec of `bench.programs` of a base model in bfloat16."""
  config = default.get_config()
  config.model = getattr(default, job['model'])()
  config.model.vocab_size = VOCABULARY
  if job['tiny']:
    config.model.update(SIZES)
  config.decode.num_beams = 1  # as the paper writes
  spec = dict(job, question=question, config=config.to_dict())
  # `bench` calls each whole model so.
  spec['part'] = 'locost, kernels made' if question == 'encode' else 'locost'
  spec['module'] = rounds.module_of(question, 'all')
  if job['part'] == 'memory':
    spec['module'] = __name__
  return spec | dict(dtype='bfloat16', seconds=SECONDS, limit=None)


def prepare(spec):
  """The encoder of `bench.encode`, with all that the compiler accounts for."""
  model, params = programs.make(spec)
  before = memory.peak_bytes()  # a lower peak of the encoder is hidden
  args = params, *programs.make_inputs(spec)
  program = programs.compile_encoder(model, *args)
  sizes = program.memory_analysis()
  total = sizes.argument_size_in_bytes + sizes.output_size_in_bytes
  total += sizes.temp_size_in_bytes - sizes.alias_size_in_bytes
  facts = dict(tokens=spec['length'], compiled_bytes=total)
  facts['before_bytes'] = before
  return {'encode': programs.case(program, *args, **facts)}


def run(job):
  """Yields a row for each question of `bench`."""
  for question in job['questions']:
    spec = make_spec(job, question)
    name = f'{job["name"]} {question}'
    yield job_lib.attempt(name, functools.partial(measure_one, spec))


def measure_one(spec):
  """Returns the facts and the times of the only call of a spec."""
  measurement = workers.Measurement(spec)
  ((name, facts),) = measurement.facts.items()
  if name not in measurement.names:
    size = memory.format_bytes(facts['temp_bytes'])
    raise MemoryError(f'{size} of temporary memory do not fit')
  rows, written = spec['batch_size'], facts.get('written', 0)
  facts = dict(documents=rows, tokens=rows * (spec['length'] + written)) | facts
  call = functools.partial(measurement.run, name)
  answers = rounds.interleave({name: call}, spec['repeats'], spec['seconds'])
  return facts | rounds.summarise(facts, answers[name])


if __name__ == '__main__':
  job_lib.main(run)
