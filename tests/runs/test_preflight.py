"""`main --preflight`: one process, two, and one of two missing."""

import json
import re
import socket

import jax
import jax.numpy as jnp
import pytest

from locost_jax import main
from locost_jax.errors import InputError
from locost_jax.runs import preflight
from tests.data.rows import write_jsonl
from tests.devices import test_hosts
from tests.ports import free_port
from tests.python import ROOT


@pytest.fixture
def data(tmp_path):
  rows = [dict(document=f'The {n} houses.', summary=f'{n}.') for n in range(9)]
  write_jsonl(tmp_path / 'rows.jsonl', rows)
  return tmp_path / 'rows.jsonl'


def start(data, workdir, *arguments, devices=1, preflight='--preflight'):
  given = '--format=text', '--config.data.vocabulary=byte', *arguments
  return test_hosts.start(workdir, data, devices, preflight, *given)


def pair(data, *workdirs, devices=2):
  port = free_port()
  return test_hosts.finish(
      *(
          start(
              data,
              workdir,
              '--hosts=2',
              f'--host={i}',
              '--config.mesh.fsdp=2',
              f'--coordinator=localhost:{port}',
              devices=devices,
          )
          for i, workdir in enumerate(workdirs)
      )
  )


def test_one_process(data, tmp_path):
  workdir = tmp_path / 'runs' / 'new'
  text, numbers = test_hosts.finish(
      start(data, workdir, '--expect_devices=2', devices=2),
      start(data, tmp_path / 'other', '--format=json', '--config.mesh.data=1'),
  )
  status, lines, err = text
  assert status == 0 and not err, err
  name = re.escape(socket.gethostname())
  patterns = [
      rf'  hosts     1: 0 {name}',
      r'  versions  locost_jax \d\S+, jax \d\S+, jaxlib .*',
      r'  devices   2 cpu, 2 on this host',
      r'  sum       over all devices: right, \d+\.\d ms',
      r'  files     the config and the files that it names: right',
      r'  data      1 training files, 359 tokens in the vocabulary, \d\S+ parameters',
      r'  mesh      data=2 fsdp=1 tensor=1 sequence=1',
      rf'  workdir   {re.escape(str(workdir))}: \d\S* GiB free',
      'ready: 2 devices on 1 host',
  ]
  assert len(lines) == len(patterns)
  for pattern, line in zip(patterns, lines):
    assert re.fullmatch(pattern, line), line
  assert list(tmp_path.iterdir()) == [data]

  status, (line,), err = numbers
  assert status == 0
  found = json.loads(line)
  assert found['mesh'] == dict(data=1, fsdp=1, tensor=1, sequence=1)
  assert found['devices']['count'] == len(found['hosts']) == 1
  assert (found['files'], found['vocabulary']) == (1, 359)
  assert len(err.splitlines()) == 8  # the lines of the text format


def test_two_processes(data, tmp_path):
  workdir = tmp_path / 'runs' / 'new'
  (status, lines, err), other = pair(data, workdir, workdir)
  assert status == 0, err
  assert lines[0].startswith('  hosts     2: 0 ') and ', 1 ' in lines[0]
  assert '4 cpu, 2 on this host' in lines[2]
  assert 'data=2 fsdp=2' in lines[6]
  assert lines[8] == 'ready: 4 devices on 2 hosts'
  assert other[:2] == (0, []), other  # only the first host prints
  assert list(tmp_path.iterdir()) == [data]


def test_one_of_two_is_missing(data, tmp_path):
  ports = free_port(), free_port()  # so that neither finds the other
  runs = [
      start(
          *(data, tmp_path / 'run', '--hosts=2', f'--host={i}'),
          f'--coordinator=localhost:{port}',
          preflight='--preflight=2',
      )
      for i, port in enumerate(ports)
  ]
  for i, (status, lines, err) in enumerate(test_hosts.finish(*runs)):
    assert (status, lines) == (75, [])
    assert err == (
        f'error: waited 2 s for all 2 hosts to connect at localhost:{ports[i]}, of '
        f'which this is host {i}: expected the same command on every host; '
        'ended with status 75\n'
    )
  assert not (tmp_path / 'run').exists()


def test_an_error_of_one_host_ends_both(data, tmp_path):
  """The hosts have different WORKDIRs and cannot see each other's files."""
  for status, lines, err in pair(
      data, tmp_path / 'a', tmp_path / 'b', devices=1
  ):
    assert status == 2
    assert re.search(
        r'^error: --workdir=\S+/a: host 0 sees no files of other hosts in it: '
        r'expected one directory that all hosts see\n$',
        err,
        re.M,
    ), err
    assert not any('ready' in line for line in lines)
  assert not list(tmp_path.glob('[ab]'))


def test_a_wrong_sum(monkeypatch):
  n = jax.device_count()
  assert preflight.sum_over_devices() > 0
  monkeypatch.setattr(preflight.jnp, 'sum', lambda x: jnp.max(x) + n)
  with pytest.raises(InputError, match=f'over {n} devices is '):
    preflight.sum_over_devices()


def test_a_cpu_is_not_ready(monkeypatch, run_command, data):
  """JAX falls back to the CPU if it finds no accelerator."""
  monkeypatch.delenv('JAX_PLATFORMS', raising=False)
  config = f'--config={ROOT / "configs/finetune.py"}'
  status, out, err = run_command(
      main, '--preflight', config, f'--workdir={data.parent / "run"}'
  )
  assert status == 2 and 'ready' not in out
  assert 'error: --preflight: JAX uses the CPU' in err
