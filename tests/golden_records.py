"""The outputs of the modules behind token caches for a small text.

`golden/records.json` has these outputs and their versions. If an output is
meant to change, raise the module's number in
locost_jax/data/record_versions.py, then write the file again:

  python -m tests.golden_records
"""

import json
from pathlib import Path
import sys

from configs import default
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import corpus_rows
from locost_jax.data import gsg
from locost_jax.data import pages
from locost_jax.data import preprocessors
from locost_jax.data import record_versions
from locost_jax.data import sources
from locost_jax.data import text as text_lib
from locost_jax.vocabularies import byte_vocabulary
from tests.data.rows import tokenise

FILE = Path(__file__).parent / 'golden' / 'records.json'

DOCUMENT = """Whales of the North

The right whale (see Fig. 3, Tab. 2) breathes air. Dr. Ahab knew it: "Whales
breathe!" he cried. No. 7 of the fleet, e.g. the Pequod, hunted whales at
5 a.m. The crew slept... Then the whale rose? Yes! It rose at once, and the
crew of the Pequod saw the whale.
- a list item. With two sentences
- another item
Grad C: Um, well. I see the whale.
PhD A: It breathes air, i.e. oxygen etc. The end of U.S. whaling came in 1924.

\u9be8\u306f\u6b4c\u3046\u3002\u6d77\u306f\u5e83\u3044\u3002

1. Install the sail. 2. Go! The whale breathes. The Pequod did not.
"""
SECTIONS = [
    dict(heading='Ships', text='The Pequod sailed. It sank.'),
    dict(heading='', text='Whales rose.'),
    dict(heading='Crew', text='Ishmael lived to tell it.'),
]


class Marked(byte_vocabulary.ByteVocabulary):
  """Bytes with a start mark, like BART's vocabulary."""

  bos_id = 2


def _text():
  return dict(
      sentences=text_lib.split_sentences(DOCUMENT),
      spans=text_lib.sentence_spans(DOCUMENT),
      paragraphs=list(text_lib.paragraph_spans(DOCUMENT)),
  )


def _gsg():
  sentences = text_lib.split_sentences(DOCUMENT)
  return dict(
      selected={
          strategy: gsg.select_sentences(sentences, 0.3, strategy, 5)
          for strategy in gsg.STRATEGIES
      },
      pairs=[
          gsg.gap_sentences(DOCUMENT, 0.3, 'independent', mask, 0)
          for mask in ('', '<extra_id_0>')
      ],
  )


def _pages():
  row = dict(
      document=DOCUMENT,
      sections=SECTIONS,
      documents=['One.', 'Two, too.', 'Three.'],
  )
  made = {}
  for form in pages.FORMS:
    parts = pages.pieces(row, form, 4)
    made[form] = [parts] + [
        tokenise(parts, query, form, 40, 200, Marked(), empty_page=empty)
        for query, empty in (('', '.'), ('Who?', ''))
    ]
  return made


def _records(config, rows):
  """Returns examples under SeqIO's names, pages cut as SeqIO does."""
  # Whose version is its own.
  found = corpus_lib.corpus(config)._replace(plain_text=1)
  data = config.data
  make, records = preprocessors.maker(found, data, Marked()), []
  for row in rows:
    made = make(row)
    if made is None:
      continue
    text = made['inputs' if data.pages else 'text']
    preprocessors.trim(made, data, Marked())
    kept = {key: made[key] for key in ('id', 'targets', 'pages') if key in made}
    if 'references' in row:
      kept['references'] = row['references']
    records.append(
        dict(
            kept,
            inputs=made['inputs'][: data.max_input_length],
            inputs_pretokenized=text,
            targets_pretokenized=made['reference'],
        )
    )
  return records


def _preprocessors():
  config = default.get_config()
  config.data.max_input_length, config.data.max_target_length = 90, 20
  config.data.page_length = 30
  config.data.task = 'python_docs_gsg'
  texts = [dict(id='a', text=DOCUMENT), dict(id='b', text='Too short.')]
  made = dict(gap_sentences=_records(config, texts))
  config.data.task = 'python_docs_summary'
  row = dict(id='c', targets='A whale.', references='')
  made['summaries'] = _records(
      config, [dict(row, inputs=DOCUMENT), dict(row, inputs=' ')]
  )
  fields = dict(
      query='',
      document=DOCUMENT[:150],
      sections=SECTIONS,
      documents=['One.', 'Two.'],
  )
  for form in pages.FORMS:
    config.data.pages = form
    made[form] = _records(config, [dict(row, inputs=json.dumps(fields))])
  return made


def _sources():
  return dict(
      row=sources.parse_row('a', 1, '{"a": "\u0085b"}'.encode(), ('a',))
  )


def _plain_text():
  text = '\ufeffhy\xadphen, zero\u200bwidth, e\u0301, 10\u2076, '
  text += '\u6d77\u306f\u5e83\u304f' * 4 + '\n\u9752\u3044'
  row = dict(id=text, text=text, targets=text, references=json.dumps([text]))
  parts = json.dumps(dict(query='q', document=text))
  wide = '\u9be8\u306f\u6b4c\u3046\u3002' * 5
  return [
      corpus_rows.plain(dict(row, inputs=parts if paged else text), paged)
      for paged in (False, True)
  ] + [gsg.gap_sentences(wide, 0.4, spaced=False)]


OUTPUTS = dict(
    text=_text,
    gsg=_gsg,
    pages=_pages,
    plain_text=_plain_text,
    preprocessors=_preprocessors,
    sources=_sources,
)


def compute(module):
  """Returns the file's entry of a module: version and output."""
  return dict(
      version=record_versions.VERSIONS[module],
      output=json.loads(json.dumps(OUTPUTS[module]())),
  )


def main():
  old = json.loads(FILE.read_text()) if FILE.exists() else {}
  new = {module: compute(module) for module in OUTPUTS}
  for module, found in new.items():
    known = old.get(module, found)
    if known['version'] == found['version'] and known != found:
      sys.exit(
          f'{module}: its output changed; raise its number in '
          'locost_jax/data/record_versions.py first'
      )
  rows = (
      f'"{module}": {json.dumps(found, ensure_ascii=False)}'
      for module, found in new.items()
  )
  FILE.write_text('{\n' + ',\n'.join(rows) + '\n}\n')


if __name__ == '__main__':
  main()
