"""Styles, classes and attributes of web pages that change what a text means."""

import re

# Marks around a text whose place or form has a meaning, which `markup` writes
# in signs. _TOKEN is an edge of a number, a name or a sign of a formula.
MARKS = tuple(map(chr, range(14, 22)))
_UP, _DOWN, *_, _END, _ = MARKS
# {marks around an element: its style or class}; lengths in ex are of formulas,
# and Word writes 'position:relative;top:-3.0pt'.
_STYLES = {
    (mark, _END): re.compile(
        rf'vertical-align\s*+:\s*+(?:{name}|{sign}(?:0?\.[2-9]|[3-9]|\d\d)'
        rf'(?![\d.]*ex))|["\'\s=]{name}(?:er)?script["\'\s>]'
        rf'|relative[^"\']{{0,40}}?top\s*+:\s*+{top}[\d.]+pt'
    )
    for mark, name, sign, top in (
        (_UP, 'sup', '', '-'),
        (_DOWN, 'sub', '-', ''),
    )
}
_STYLES['\1', '\1'] = re.compile(r'display\s*+:\s*+block')
# What the style of a class may mean for the text.
_MEANT = re.compile(
    r'(?:vertical-align|list-style(?:-type)?|display|position|top)\s*+:[^;]*+'
)
_COUNTER = re.compile(
    r'\.([\w-]+)\s*>\s*li:+before\s*\{[^{]*counters?\([^,()]*(?:,\s*([\w-]+))?\)'
)
_NONE = re.compile(r'(?i)style\s*=\s*["\']?[^"\'>]{,200}display\s*:\s*none')
_HIDDEN = re.compile(r'(?i)\shidden(?=[\s/>=])')
_QUOTED = re.compile('"[^"]*"|\'[^\']*\'')


def styled(source):
  """Returns the marks around an element that its style raises or parts."""
  words = 'vertical-align', 'script', 'relative', 'display'
  if any(word in source for word in words):
    for marks, style in _STYLES.items():
      if style.search(source):
        return marks
  return None


def class_styles(sheet):
  """Returns {class: declarations} of a style sheet, of those that _MEANT has."""
  styles, numbered = {}, {}
  for rule in sheet.split('}'):
    selectors, _, declarations = rule.rpartition('{')
    meant = ';'.join(_MEANT.findall(declarations))
    if found := _COUNTER.search(rule):  # as Google Docs numbers items
      numbered[found[1]] = f'list-style:{found[2] or "decimal"};'
    for selector in selectors.split(',') if meant else ():
      _, dot, name = selector.strip().rpartition('.')
      if dot:
        styles[name] = f'{styles.get(name, "")};{meant}'
  return styles | {x: numbered[x] + styles.get(x, '') for x in numbered}


def hides(source):
  """Returns whether a tag hides its element for good, not until it is found."""
  if 'none' in source and _NONE.search(source):
    return True
  if 'hidden' not in source or 'until' in source:
    return False
  return bool(_HIDDEN.search(_QUOTED.sub('', source)))
