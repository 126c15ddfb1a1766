"""Flags of `papers.seeds`; `test_planted` checks its means and gains."""

import pytest

from papers import seeds


@pytest.mark.parametrize(
    'flags',
    [
        '--seeds=0 --workdir=x',
        '--seeds=2 --workdir=.',
        '--seeds=2 --lengths=4 --workdir=x',
        '--lengths=4,8 --workdir=x',
        '--lengths=4,4 --workdir=x --evaluate',
        '--seeds=2',
    ],
)
def test_bad_flags(flags, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'config.json').write_text('{}')
  with pytest.raises(SystemExit) as end:
    seeds.main(flags.split())
  assert end.value.code == 2 and not (tmp_path / 'x').exists()
