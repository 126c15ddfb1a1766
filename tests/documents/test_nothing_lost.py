"""No words are lost in silence: what is read, and what is counted."""

import collections
import random
import re
import zipfile

import pytest

from locost_jax.documents import places
from locost_jax.documents import readers
from locost_jax.documents.places import Place
from locost_jax.errors import InputError
from tests.summarizing.test_documents import make_book

MATH = '<math><semantics><mrow>{}</mrow><annotation>x</annotation></semantics></math>'
KATEX = '<span class="katex-html" aria-hidden="true"><span>6</span></span>'
ROOT = '<mroot><mn>8</mn><mn>3</mn></mroot>'
PAGES = {
    '10<sup>6</sup> cells, 10<sup>-3</sup>': '10^6 cells, 10^(-3)',
    '2<sup>2<sup>3</sup></sup> 5<sup>th</sup>': '2^(2^3) 5th',
    'H<sub>2</sub>O, x<sub>10</sub>, 10<sub>2</sub>': 'H2O, x10, 10_2',
    '2<sup>1</sup>/<sub>3</sub>, M<sup>c</sup>Coy': '2 1/3, McCoy',
    'in 1990<sup><a href="#n">5</a></sup>': 'in 1990 [5]',
    'in 1990.<a href="#n"><sup>5</sup></a> So': 'in 1990. [5] So',
    '<p><sup>1</sup>2010 <p><sup>a</sup>mean': '1 2010\n\na mean',
    'rained<a epub:type="noteref" href="x">4</a>': 'rained [4]',
    'See <a href="#t">3</a>, (<a href="#t">4</a>)': 'See 3, (4)',
    'dro<span class="pagenum"><a id="p">13</a></span>ps': 'drops',
    'a<ruby>漢<rp>(</rp><rt>かん<rb>字<rt>じ</ruby>b': 'a漢字b',
    '日本\n<b>語</b>です\na b\nc': '日本語です a b c',
    '每10<sup>6</sup>页\n<li>一，\n<li>二': '每10^6页\n一，\n二',
    '<td>国家\n<td>年份</td>\n<td>票数</td>': '国家 年份 票数',
    '10<i style="vertical-align: super">6</i> 9<a class=subscript>2': '10^6 9_2',
    '<style>p .s{vertical-align:super}.b, i.c{display:block}</style>10<i class="a s">'
    '6</i><i class=b>a</i><i class=c>b</i>': '10^6\na\nb',
    '10<i style="position:relative;top:-3.0pt">6</i>': '10^6',
    '<meta charset=latin1>é–': 'é–',
    '<h:p>a</h:p><h:p>b</h:p>': 'a\n\nb',
    'for <del>10</del><ins>12</ins>': 'for 12',
    '<img alt="T">he <img class="math" alt="x^2"><img alt="a cat">': 'The x^2',
    '<script type="math/tex">x<y</script><i class="MathJax_Preview">x': 'x<y',
    'x<div class="page-break"><p>All of it.</p></div>y': 'x\n\nAll of it.\n\ny',
    '<button>a</button><select>b</select><input value=5>kg': 'a b 5 kg',
    '<i style="display: none">7</i>10 <i hidden>x</i><i title=hidden>c': '10 c',
    '<meta charset=latin1>“é”': '“é”',
    '<p>a</p><div hidden>b<p>c</div><div style="display:none">d</div>e': 'a\n\ne',
    '<p hidden>a<p>b<div title="a hidden b" hidden="until-found">c</div>': 'a\n\nb\n\nc',
    '<p>He said <q>No</q>.': 'He said “No”.',
    '<m:math><m:mfrac><m:mn>1</m:mn><m:mn>3</m:mn></m:mfrac>': '1/3',
    MATH.format('<mi>f</mi><mfenced><mi>a</mi><mi>b</mi></mfenced>'): 'f(a, b)',
    MATH.format('<mi>x</mi>') + '<img class="math" alt="x">': 'x',
    '<epub:case><math>1</math></epub:case><epub:default>one': '1',
    MATH.format('<mfrac><mn>1</mn><mn>3</mn></mfrac>'): '1/3',
    MATH.format('<mn>2</mn><mfrac><mi>a</mi><mn>3</mn></mfrac>'): '2 a/3',
    MATH.format('<msup><mn>10</mn>\n<mn>6</mn></msup>') + KATEX: '10^6',
    MATH.format(f'<msqrt><mn>2</mn></msqrt>{ROOT}'): '√2 8^(1/3)',
}
CUES = {
    'WEBVTT\n00:01 --> 00:02\nA.\n\n00:03.0 --> 00:04,00\nB.': 'A. B.',
    'WEBVTT\n\nNOTE x\n1\n00:01 --> 00:02\nA.\n2\n00:02 --> 00:03\nB.': 'A. B.',
    '1\n0:0:1,1 --> 0:0:2:1\nNo.\n2\n0:0:3 -> 0:0:4\nNo.': 'No. No.',
    '1\n75:10 --> 75:12\nFor\n42\n\n2\n75:12 --> 75:11\nB.': 'For 42 B.',
    '1\n00:01 --> 00:02\nA.\n\n2\n00:99 --> never\nB.': 'A. B.',
    '00:01 --> 00:02\n1. A → b\n3.5 → 4 %\n2: --> b': '1. A → b 3.5 → 4 % 2: --> b',
    '1\n\n0:0:1 --> 0:0:2\nA.\n\n2\n\n0:0:3 - -> 0:0:4\nB.': 'A. B.',
    '1 0:0:1 --> 0:0:2\nA.\n2 0:0:3 --&gt; 0:0:4\nB.': 'A. B.',
    '00:01 --> 00:02\nx<5, a <b and c> <i>d</i>\\Ne\\hf': 'x<5, a <b and c> d e f',
    '00:01 --> 00:02\n1. A -> 10:30 – 11:00\n-> b': '1. A -> 10:30 – 11:00 -> b',
    '00:01 --> 00:02\nNo: a.\n\n00:09 --> 00:10\nB.': 'No: a.\n\nB.',
    'webvtt\n\n00:01 → 00:02\n<v>a {b}b{/b} <0:00:01.5>c': 'a b c',
    '00:01 --> 00:02\n<V A>a</v>b\n\n00:03 --> 00:04\nc': 'A: a\n\nb c',
    '00:01 --> 00:02\na\nb\n\n00:02 --> 00:03\nb\nc': 'a b c',
    '00:01 --> 00:02\n日本\n語\n\n00:02 --> 00:03\nです': '日本語です',
}


def test_formulas_drawn_by_mathjax():
  page = b'<p>If <mjx-container><mjx-math><mjx-mi></mjx-mi></mjx-math>'
  (note,) = readers.read('.html', page, 'x').notes
  assert note.startswith('x: 1 formula left out (drawn by MathJax), such as')


def test_what_a_terminal_shows():
  text = 'N\bNA\bA _\bfoo \x1b[1;31mx\x1b[0m'
  assert readers.read('.txt', text.encode(), 'x').text == 'NA foo x'


@pytest.mark.parametrize('source', [*PAGES, *CUES])
def test_values_and_words(source):
  kind = '.html' if source in PAGES else '.srt'
  assert readers.read(kind, source.encode(), 'x').text == (PAGES | CUES)[source]


def test_clean_text_has_its_places():
  wide = 8 * '日本'
  text = f'\ufeffsum\xadma\u200bry e\u0301 {wide}\n{wide}。\n{wide}\nb\u200dc'
  text += '\n می\u200cخواهم'
  found = places.clean(
      places.Placed(text, (Place(8, 'b\xad'), Place(text.index('می'), 'm')))
  )
  assert found.text == f'summary é {wide}{wide}。\n{wide}\nbc\n می\u200cخواهم'
  shown = [(p.label, found.text[p.start :][:2]) for p in found.places]
  assert shown == [('b', 'ry'), ('m', 'می')]


def test_notes_name_a_wrong_time_and_pages_without_text(tmp_path):
  data = '1\n00:01 --> 00:02\nun garçon'.encode('cp1252')
  for kind in '.html', '.srt':
    (note,) = readers.read(kind, data, 'x').notes
    assert note.endswith("not UTF-8 (read as cp1252), such as 'garçon'")
  with pytest.raises(InputError, match='not UTF-8 .byte'):
    readers.read('.vtt', data, 'x')  # which must be UTF-8
  cues = b'1\n00:05 --> 00:03\nA.\n\n2\n00:06 --> 00:07\nB.'
  (note,) = readers.read('.srt', cues, 'x').notes
  assert "kept), such as '00:05 --> 00:03 in line 2'" in note
  pages = {x: f'<html><p>{x}' for x in 'abc'} | {'d': b'\x89PNG'}
  make_book(tmp_path / 'x', pages, kinds=('image/x', 'text/X', '', 'image/png'))
  found = readers.read('.epub', (tmp_path / 'x').read_bytes(), 'x')
  assert found.text == 'a\n\nb\n\nc'
  assert 'x: 1 page left out (no text), such as' in found.notes[0]


def test_pages_that_links_open_and_styles_of_books(tmp_path):
  pages = {
      'a': '<a href="b#c">1</a>0<i class="s">6</i>' + 1000 * ' ',
      'b': '<p>Note',
      'C': 'x',
  }
  pages['s.css'] = '.s { vertical-align: super }'
  kinds = *3 * ['text/html'], 'text/css'
  make_book(tmp_path / 'x', pages, ['a', 'a'], kinds=kinds)
  # Each page is read once: twice, it would be above the limit.
  found = readers.read('.epub', (tmp_path / 'x').read_bytes(), 'x', 2000)
  assert found.text == '10^6\n\nNote'
  assert "1 page left out (not in the spine), such as 'O/C'" in found.notes[1]


def test_pages_by_names_that_are_spelt_otherwise(tmp_path):
  pages = {'a.txt': 'A <b.', 'c\xe9.html': '<p>Two', 'none.html': ''}
  kinds = 'text/plain', 'text/html', 'text/html'
  make_book(tmp_path / 'x', pages, kinds=kinds, drop=['O/none.html'])
  with zipfile.ZipFile(tmp_path / 'x') as old:
    with zipfile.ZipFile(tmp_path / 'y', 'w') as new:
      for name in old.namelist():
        spelt = name.replace('c\xe9', 'Ce\u0301').replace('/', '\\')
        new.writestr(spelt, old.read(name))
  found = readers.read('.epub', (tmp_path / 'y').read_bytes(), 'x')
  assert found.text == 'A <b.\n\nTwo'
  assert "page left out (missing), such as 'O/none.html" in found.notes[0]


HTML = (
    '<p>{0} {1}<p>{2}',
    '<li>{0}<li>{1} <b>{2}</b></li>',
    '<h2>{0}</h2><td>{1}<td>{2}</td>',
    '<nav><a href="#">{0}</a> {1}</nav>{2} ',
    '<svg><text>{0}</text><text>{1}</text></svg>{2} ',
    '{0}<sup>{1}</sup> {2}<br>',
    ' {0}<ruby>{1}<rt>{2}</ruby> ',
    '<a href="#x">{0} <span class="pb">{1}</span></a> {2} ',
    '<del>{0}</del><img alt="{1}"><iframe src="{2}"></iframe>',
    '<math><mfrac><mi>{0}</mi><mi>{1}</mi></mfrac><mi>{2}</mi></math> ',
    '{0}&shy;\n{1} < {2}\n',
    '<b style="display:none">{0}</b>{1} <input type=text value="{2}"> ',
)
CUE = (
    '{n}\n{t} --> {t}\n{0}\n{1} <i>{2}</i>\n',
    '{n}\n{t} --> {t}\n{0} <{1}> {2}\n\n',
    '\n{n}\n{t} --> {t} align:start\n<v Al>{0}</v>{1}: {2}\n\n',
    '{n}\n{t} --> later\n{0}\n\n{1}\n{2}\n\n',
    '\nNOTE {0} {1}\n{2}\n\n{n}\n{t} --> {t}\n',
    '{n}\n{t} -> {t}\n>> AB: {0}\\N{1}\n{n}\n{t} --> {t}\n{2}\n',
)
KINDS = {
    '.html': ('', HTML),
    '.epub': ('', HTML),
    '.vtt': ('WEBVTT - w301\nKind: captions\n', CUE),
    '.srt': ('', CUE),
    '.md': ('', ('{0}\n==\n{1} *{2}*\n', '```\n{0}\n```\n- {1} {2}\n')),
    '.txt': ('', ('{0} {1}\n{2}\n\n', '\t{0}\ufeff\n{1}\x0c{2}')),
}


@pytest.mark.parametrize('seed', range(5))
@pytest.mark.parametrize('kind', KINDS)
def test_words_are_read_or_counted(kind, seed, tmp_path):
  chance = random.Random(seed)
  source, forms = KINDS[kind]
  for n in range(0, 300, 3):
    words, time = [f'w{n + i}' for i in range(3)], f'{n // 60}:{n % 60}.0'
    source += chance.choice(forms).format(*words, n=n, t=time)
  data = source.encode()
  if kind == '.epub':
    make_book(tmp_path / 'x', {'a': source, 'b': 'w301'}, contents='x')
    data, source = (tmp_path / 'x').read_bytes(), f'{source} w301'
  found = readers.read(kind, data, 'x')
  count = lambda text: collections.Counter(re.findall(r'w\d+', text))
  lost = count(source) - count(found.text)
  notes = ' '.join(n for n in found.notes if 'not readable' not in n)
  numbers = re.findall(r'x: ([\d,]+) ', notes)
  assert not count(found.text) - count(source)
  assert lost.total() == sum(int(n.replace(',', '')) for n in numbers)
