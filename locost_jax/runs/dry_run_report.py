"""Formats a dry run: sizes, arithmetic, memory, and whether it fits."""

import json
import math

from locost_jax.devices import memory as memory_lib


def format_json(phases):
  """Returns the results of `dry_run.dry_run` as one JSON object."""
  return json.dumps({'phases': phases})


def format_text(phases):
  """Returns the results of `dry_run.dry_run` as text."""
  return '\n\n'.join('\n'.join(_lines(phase)) for phase in phases)


def peak_bytes(programs):
  """Returns the bytes of the larger program; None if one is refused.

  Args:
    programs: dict with memory, evaluating and refused, from
      `dry_run.compile_programs`.
  """
  if programs['refused']:
    return None
  evaluating = programs['evaluating'] or {}
  return max(programs['memory']['total'], evaluating.get('total', 0))


def _lines(phase):
  """Yields the lines of a phase, from `dry_run.measure_phase`."""
  yield (
      f'{phase["name"] or "training"} on {phase["task"]}, {phase["steps"]} '
      'steps; nothing was run'
  )
  yield from _sizes(phase)
  yield '  memory of a device'
  yield from _memory(phase['memory'], phase['evaluating'])
  if phase['available'] is not None:
    yield _line('  available', f'{_show(phase["available"]):>9}')
  if not phase['fits']:
    yield from _changes(phase)
  elif phase['available'] is not None:
    share = peak_bytes(phase) / phase['available']
    yield f'  it fits: {share:.0%} of what is available'
  else:
    yield '  the compiler takes it; the free memory is unknown'


def _sizes(phase):
  batch, mesh, flops = phase['batch'], phase['mesh'], phase['flops']
  devices = math.prod(mesh.values())
  axes = ' '.join(f'{axis}={size}' for axis, size in mesh.items())
  each = f', {flops / devices:.3g} on each device' if devices > 1 else ''
  yield _line(
      'largest batch',
      f'{batch["documents"]} documents, {batch["input_tokens"]} -> '
      f'{batch["target_tokens"]} tokens',
  )
  yield _line('devices', f'{devices} x {phase["device"]}, {axes}')
  yield _line('parameters', f'{phase["parameters"] / 1e6:.1f}M')
  yield _line(
      'a step', f'{flops:.3g} FLOPs in matrix products and transforms{each}'
  )


def _memory(step, evaluating):
  if step:
    for key, text in (
        (
            'arguments',
            f'{_show(step["state"])} parameters and optimiser, and the batch',
        ),
        ('temporary', 'gradients and what they are made from'),
        ('output', f'{_show(step["reused"])} of it in place of arguments'),
        ('total', ''),
    ):
      yield _line(f'  {key}', f'{_show(step[key]):>9}  {text}'.rstrip())
  if evaluating:
    yield _line(
        '  evaluating',
        f'{_show(evaluating["total"]):>9}  {_show(evaluating["temporary"])} of '
        f'it to write {evaluating["documents"]} documents, '
        f'{evaluating["input_tokens"]} -> {evaluating["tokens"]} tokens',
    )


def _changes(phase):
  step, changes = phase['memory'], phase['changes']
  available = phase['available']
  if phase['refused']:
    yield f'  the compiler refuses {"to evaluate" if step else "the step"}:'
    yield f'    {phase["refused"]}'
  yield '  IT DOES NOT FIT; with'
  for change in changes:
    flags = ' '.join(
        f'--config.{key}={value}' for key, value in change['config'].items()
    )
    verdict = 'fits' if change['fits'] else 'does not fit'
    total = '' if change['total'] is None else _show(change['total'])
    yield f'    {total:>9}  {verdict:12}  {flags}'
  if step and available is not None and step['state'] > available:
    yield (
        '    the parameters and the optimiser alone do not fit: try a smaller '
        'model, optim.name=adafactor, or more devices'
    )
  elif not changes[-1:] or not changes[-1]['fits']:
    yield (
        '    still too large: try smaller batches, a smaller model or more '
        'devices'
    )
  evaluating = phase['evaluating']
  if evaluating and available is not None and evaluating['total'] <= available:
    yield '    evaluating alone fits, as --evaluate of a run does'


def _line(title, text):
  return f'  {title:15}{text}'


def _show(number):
  return memory_lib.format_bytes(number)
