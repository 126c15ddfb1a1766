"""Lists the tests that were skipped in every run, with the reasons.

python .ci/skipped.py RUN.xml ...     the reports of pytest --junitxml
"""

import sys
from xml.etree import ElementTree


def skipped(paths):
  """Returns {test: reason} of the tests that were skipped and never ran.

  A file that is skipped as a whole is one test, named as the file.

  Args:
    paths: of JUnit reports.
  """
  reasons, ran = {}, set()
  for path in paths:
    for case in ElementTree.parse(path).iter('testcase'):
      file, name = case.get('classname'), case.get('name')
      test = f'{file}::{name}' if file else name
      reason = case.find('skipped')
      if reason is None:
        ran |= {test, file}
      else:
        reasons.setdefault(test, reason.get('message'))
  return {test: reasons[test] for test in reasons if test not in ran}


if __name__ == '__main__':
  found = skipped(sys.argv[1:])
  print(f'--- {len(found)} tests were skipped everywhere')
  for test, why in sorted(found.items()):
    print(f'{test}: {why}')
