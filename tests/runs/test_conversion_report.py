"""The output of convert."""

from locost_jax.runs import conversion_report


def test_escape_codes_of_tensor_names_are_visible():
  tensor = lambda name: dict(name=name, dtype='float32', shape=[2])
  report = dict(
      tensors=[{'from': tensor('a\x1b[31m\nb'), 'to': tensor('c')}],
      copies={},
      unread=['d\u202ee'],
      dtype='float32',
      model='t5',
      parameters=2,
      copied=[],
      notes=[],
      direction='run',
      target='run',
      source='release',
  )
  text = conversion_report.format_text(report)
  assert text.splitlines()[:2] == [
      'a\\x1b[31m\\nb float32[2] -> c float32[2]',
      'd\\u202ee: not used by the model',
  ]
