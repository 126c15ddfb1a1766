"""Sentence splitting: hard cases, equivalent texts, and linear time."""

import textwrap
import time

import pytest

from locost_jax.data import text as text_lib

PROSE = [
    'Dr. Smith met J. R. Tolkien at 5 p.m. on Jan. 5.',
    '"Go away!" he said.',
    'She left at once, i.e. before the U.S. delegation arrived (see Fig. 3).',
    'It cost 3.14 dollars, cf. no. 7 of the list by Lee et al. 2003.',
    'Smith et al. (see Fig. 3) and Wu et al. (in press) agree, etc. (as ever).',
    'Was it Mr. Brown?',
    'No.',
    'The firm, Acme Inc. of Boston, closed in the U.S.',
    'The rest is in Sec. 4, etc.',
    'Then nothing happened... and nobody came.',
    'Do you use e.g. Python 3.11.7 or the module os.path in your app?',
    'He wrote to the app.',
    'Nobody answered him, or her, or the other forty people in the big room.',
]


def test_prose():
  assert text_lib.split_sentences(' '.join(PROSE)) == PROSE


@pytest.mark.parametrize('width', [50, 72, 100])
def test_hard_wrapped_text_splits_like_the_same_text_on_one_line(width):
  wrapped = textwrap.fill(' '.join(PROSE), width)
  assert wrapped.count('\n') >= 5
  assert text_lib.split_sentences(wrapped) == PROSE


def test_transcript_turns_are_separate_sentences():
  turns = [
      'Grad C: Yeah , we had a long discussion about that',
      "PhD D: It it doesn't",
      'Grad C: Did did did it ?',
      'Industrial Designer: um and then we stopped',
  ]
  assert text_lib.split_sentences('\n'.join(turns)) == turns
  assert text_lib.split_sentences('Grad C: Well . So . I see .') == [
      'Grad C: Well .',
      'So .',
      'I see .',
  ]


def test_docstring():
  text = """Compute the mean
of an array.

Parameters
----------
a : array_like
    Values whose mean is wanted. If it is not
    an array, a conversion is attempted.
axis : int

>>> mean([1, 2])
1.5

1. First do this.
2. Then that
"""
  assert text_lib.split_sentences(text) == [
      'Compute the mean of an array.',
      'Parameters ----------',
      'a : array_like',
      'Values whose mean is wanted.',
      'If it is not an array, a conversion is attempted.',
      'axis : int',
      '>>> mean([1, 2])',
      '1.5',
      '1. First do this.',
      '2. Then that',
  ]


def test_long_lines_are_paragraphs():
  first = 'word ' * 30 + 'without a stop'
  assert text_lib.split_sentences(f'{first}\nlower case line') == [
      first,
      'lower case line',
  ]


# In Arabic, Urdu, Hindi, Armenian, Burmese, Amharic, Khmer, Chinese, Japanese,
# Thai: sentences of the Universal Declaration of Human Rights, and questions.
SCRIPTS = [
    ['هل الحوت كبير؟', 'نعم، «إنه كبير جدا»!', 'يعيش في البحر.', 'حقا؟!'],
    [
        'تمام انسان آزاد پیدا ہوئے ہیں۔',
        'انہیں ضمیر اور عقل ودیعت ہوئی ہے۔',
        'کیا؟',
    ],
    [
        'सभी मनुष्य जन्मजात स्वतन्त्र हैं।',
        'उसने कहा, "यह 3.5 है।"',
        'श्लोकः ॥',
        'क्या?',
    ],
    ['Բոլոր մարդիկ ծնվում են ազատ։', 'Նրանք ունեն բանականություն։'],
    [
        'လူတိုင်းသည် တူညီ လွတ်လပ်သည်။',
        'ထိုသူတို့၌ ပိုင်းခြားဝေဖန်တတ်သော ဉာဏ်ရှိသည်။',
    ],
    ['የሰው ልጅ ሁሉ ሲወለድ ነጻ ነው።', 'የተፈጥሮ ማስተዋል አለው።', 'እውነት ነው፧'],
    ['មនុស្សទាំងអស់ កើតមកមានសេរីភាព។', 'មនុស្ស មានវិចារណញ្ញាណ។'],
    ['人人生而自由。', '他们赋有理性和良心！？', '「对吗？」', '是３．５。'],
    [
        'すべての人間は自由である．',
        '理性と良心とを授けられている｡',
        '円周率は３．１４だ。',
    ],
    [
        'มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ',
        'ต่างมีเหตุผลและมโนธรรม และควรปฏิบัติต่อกันด้วยเจตนารมณ์แห่งภราดรภาพ',
        'บุคคลมีสิทธิในสิ่งต่างๆ 30 ข้อ',
    ],
]


@pytest.mark.parametrize('sentences', SCRIPTS, ids=lambda found: found[0][:6])
def test_sentences_of_other_scripts(sentences):
  assert text_lib.split_sentences(' '.join(sentences)) == sentences
  assert text_lib.OTHER_SCRIPTS.search(' '.join(sentences))
  if not sentences[-1].endswith('ข้อ'):  # marks need no blank after them
    marks = [x for x in sentences if x[-1] not in '.?!"']
    assert text_lib.split_sentences(''.join(marks)) == marks


@pytest.mark.parametrize(
    'text',
    [
        'a\n\n b.  C\tD! \n',
        '...',
        '?! A. "B." (C.) D\n\n\n',
        '\u3002x\u3002 y.',
        'A.\r\nB.\r\n',
        '- a\n- b\n',
        'x \u2026 Y. \u2028 Z',
        '',
    ],
)
def test_every_character_is_in_one_sentence(text):
  spans = text_lib.sentence_spans(text)
  assert ''.join(''.join(text[a:b] for a, b in spans).split()) == ''.join(
      text.split()
  )
  ends = [0] + [i for span in spans for i in span]
  assert ends == sorted(ends)
  assert all(text[a:b].strip() == text[a:b] != '' for a, b in spans)


UNITS = '.|. |5. |A. |."|(" |\n|Ab:\n|a, |!? |* |a\n \n|A B C D |x|\u3002\uff1f|\u0e01'


@pytest.mark.parametrize('unit', UNITS.split('|'))
def test_linear_time(unit):
  """Ten times the text takes about ten times the CPU time."""

  def work(length):
    text = unit * (length // len(unit)) + 'x'
    start = time.thread_time_ns()
    text_lib.split_sentences(text)
    return time.thread_time_ns() - start

  work(1000)  # warm-up
  short = min(work(10_000) for _ in range(5))
  assert work(100_000) < 40 * short  # quadratic time would be 100 times
