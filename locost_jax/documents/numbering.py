"""The numbers of ordered lists as a reader sees them: '2.', '(a)', 'IV', '2.1'.

Of pages: attributes of <ol> and <li> (HTML, 4.4.5 to 4.4.8), not style sheets.
Of Word: numbering.xml (ISO 29500-1, 17.9).
"""

import re
import types

_VALUES = 1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1
_ROMAN = [*zip(_VALUES, 'm cm d cd c xc l xl x ix v iv i'.split())]
_TYPES = dict(
    a='lower-alpha', A='upper-alpha', i='lower-roman', I='upper-roman'
)
_KIND = re.compile(  # by type or, in the element itself, list-style
    r'(?i:\stype\s*=\s*["\']?)([aAiI])["\'\s/>]|list-style(?:-type)?\s*:[^;]{,80}?'
    r'(?<![\w-])(decimal(?:-leading-zero)?|none|disc|circle|square'
    r'|cjk-ideographic|\w{5}-(?:alpha|latin|roman))'
)
_INTEGER = r'\s*+([-+]?)0*([0-9]{1,10})(?![0-9])'
_PROPERTIES = (
    'abstractNumId isLgl lvlRestart lvlText numFmt numStyleLink pStyle start '
    'startOverride styleLink'
)


def _counting(ten, *digits):
  """Returns the numbers from 1 to 99 as Chinese and its neighbours count."""
  tens = '', ten, *(digit + ten for digit in digits[1:])
  return [x + y for x in tens for y in ('', *digits)][1:]


# Words and signs of formats, by the first letters of a format's name.
_SIGNS = {
    'cardinalText': 'One Two Three Four Five Six Seven Eight Nine Ten Eleven '
    'Twelve Thirteen Fourteen Fifteen Sixteen Seventeen Eighteen'.split(),
    'ordinalText': 'First Second Third Fourth Fifth Sixth Seventh Eighth Ninth '
    'Tenth Eleventh Twelfth Thirteenth Fourteenth Fifteenth'.split(),
    **dict.fromkeys(
        ('chinese', 'taiwanese', 'japanese', 'cjk'),
        _counting(*'十一二三四五六七八九'),
    ),
    'korean': _counting(*'십일이삼사오육칠팔구'),
    'ideographT': '甲乙丙丁戊己庚辛壬癸',
    'decimalEnclosed': '①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳',
    'aiueo': 'アイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホ',
    'iroha': 'イロハニホヘトチリヌルヲワカヨタレソツネナラムウヰノオクヤマ',
    'ganada': '가나다라마바사아자차카타파하',
    'russian': 'абвгдежзиклмнопрстуфхцчшщыэюя',
    'hebrew': 'אבגדהוזחטי',
    'arabicAlpha': 'أبتثجحخدذرزسشصضطظعغفقكلمنهوي',
}
_SIGNS_OF = re.compile('|'.join(_SIGNS))
_LONGEST = 80  # characters of a property, and of a number of Word


def _integer(text, default, before=''):
  """Returns the integer at the start of a text, if it has at most ten digits."""
  found = re.match(before + _INTEGER, text, re.DOTALL)
  return int(found[1] + found[2]) if found else default


def written(number, kind):
  """Returns a number as a list-style of CSS or a numFmt of Word writes it.

  After z follow 'aa', 'ab' in CSS and 'aa', 'bb' in Word. Other formats, and
  numbers without letters or Roman digits, have decimal digits.
  """
  text = ''
  if 'oman' in kind and 0 < number < 4000:
    for value, digits in _ROMAN:
      text += digits * (number // value)
      number %= value
  elif 'Letter' in kind and 0 < number <= 780:
    text = chr(97 + (number - 1) % 26) * ((number + 25) // 26)
  elif kind.endswith(('alpha', 'latin')) and number > 0:
    while number:
      number, letter = divmod(number - 1, 26)
      text = chr(97 + letter) + text
  elif kind not in ('bullet', 'circle', 'disc', 'none', 'square'):
    found = _SIGNS_OF.match(kind)
    signs = _SIGNS[found[0]] if found else ()
    text = signs[number - 1] if 0 < number <= len(signs) else str(number)
    if kind == 'ordinal' and number > 0:
      ends = {1: 'st', 2: 'nd', 3: 'rd'} if number // 10 % 10 != 1 else {}
      text += ends.get(number % 10, 'th')
    elif kind in ('decimalZero', 'decimal-leading-zero'):
      text = text.zfill(2)
  return text.upper() if 'upper' in kind.lower() else text


class PageLists:
  """Writes the numbers of items into the parts of a page, as '\\6 1. \\7'."""

  def __init__(self, parts):
    self._parts, self._open = parts, []

  def start(self, tag, source):
    """Reads the start tag of a list or an item."""
    found = _KIND.search(source)
    kind = found and (_TYPES.get(found[1]) or found[2])
    named = r'(?i).*?[\s"\']{}\s*+=\s*+["\']?+'.format
    if tag != 'li':
      step = -1 if re.search(r'(?i)\sreversed[\s=/>]', source) else 1
      number = _integer(source, 1 if step > 0 else None, named('start'))
      kind = kind or ('decimal' if tag == 'ol' else 'disc')
      found = types.SimpleNamespace(
          tag=tag, kind=kind, number=number, step=step
      )
      found.count, found.unknown = 0, []  # items, and indices of their parts
      self._open.append(found)
    elif self._open:
      top = self._open[-1]
      top.count += 1
      top.number = _integer(source, top.number, named('value'))
      self._parts.append('')
      if top.number is None:  # counts down to 1
        top.unknown.append(len(self._parts) - 1)
      else:
        self._set(-1, top.number, kind or top.kind)
        top.number += top.step

  def _set(self, at, number, kind):
    number = written(number, kind)
    self._parts[at] = f'\6{number}.\7' * bool(number)

  def end(self, tag=None):
    """Ends a list and those in it, or all."""
    is_open = not tag or any(found.tag == tag for found in self._open[-64:])
    while self._open and is_open:
      closed = self._open.pop()
      is_open = closed.tag != tag
      for i, at in enumerate(closed.unknown):
        self._set(at, closed.count - i, closed.kind)


def word_lists(elements):
  """Returns {(tag of a list, id): {level, '' for the list: its properties}}.

  Args:
    elements: [('{namespace}tag', attributes), ...] of numbering.xml.
  """
  lists, owner, properties = {}, {}, {}
  for name, values in elements:
    tag = name.rpartition('}')[2]
    values = {key.rpartition('}')[2]: value for key, value in values.items()}
    if tag in ('num', 'abstractNum'):
      owner = lists[tag, values.get(f'{tag}Id')] = {}
    if tag in ('num', 'abstractNum', 'lvl', 'lvlOverride'):
      properties = owner.setdefault(values.get('ilvl', ''), {})
    elif tag in _PROPERTIES.split():
      properties[tag] = values.get('val', '')[:_LONGEST]
  owners = {
      found['']['styleLink']: found
      for found in lists.values()
      if 'styleLink' in found.get('', {})
  }
  for key, found in lists.items():  # the levels of a style for lists
    lists[key] = owners.get(found.get('', {}).get('numStyleLink'), found)
  return lists


class WordNumbers:
  """Counts the numbered paragraphs of a text, by the lists of `word_lists`."""

  def __init__(self, lists):
    self._lists, self._counts, self._begun = lists, {}, set()

  def following(self, paragraph):
    """Returns the number of the next paragraph, or '': none, or a bullet.

    Args:
      paragraph: its properties numId, ilvl and, if a style has these, that
        style: its level is the one that names it.
    """
    num, style = paragraph.get('numId'), paragraph.get('style')
    own = self._lists.get(('num', num), {'': {}})
    name = own[''].get('abstractNumId')
    shared = self._lists.get(('abstractNum', name))
    if not shared:
      return ''
    levels = [shared.get(i, {}) | own.get(i, {}) for i in '012345678']
    of = lambda i, key, default: _integer(levels[i].get(key, ''), default)
    starts = [of(i, 'startOverride', of(i, 'start', 0)) for i in range(9)]
    linked = [i for i in range(9) if style and levels[i].get('pStyle') == style]
    level = (*linked, min(max(_integer(paragraph.get('ilvl', ''), 0), 0), 8))[0]
    at, counts = levels[level], self._counts.get(name, {})
    is_first = 'startOverride' in at and (num, level) not in self._begun
    self._begun.add((num, level))
    number = counts.get(level, starts[level] - 1) + 1
    restarts = lambda i: level < min(i, of(i, 'lvlRestart', i))
    counts = {i: counts[i] for i in counts if not restarts(i)}
    counts[level] = starts[level] if is_first else number
    self._counts[name] = counts
    is_legal = at.get('isLgl', '0') not in ('0', 'false', 'off')

    def of_level(found):
      i = int(found[1]) - 1
      kind = levels[i].get('numFmt', 'decimal')
      return written(counts.get(i, starts[i]), 'decimal' if is_legal else kind)

    text = '' if at.get('numFmt') == 'bullet' else at.get('lvlText', '')
    return re.sub('%([1-9])', of_level, text)[:_LONGEST]
