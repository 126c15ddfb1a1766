"""The hosts' roll call, with missing, wrong and unrelated peers."""

import re
import socket
import subprocess
import sys
import threading
import time
import types

from absl import flags
import pytest

from locost_jax.errors import InputError
from locost_jax.errors import Stopped
from locost_jax.hosts import connect
from locost_jax.hosts import roll_call
from tests.ports import free_port


def call_all(configs, seconds=10.0):
  """Returns the result or exception of each host's call, made concurrently."""
  results = [None] * len(configs)

  def call(i):
    try:
      results[i] = roll_call.call(configs[i], seconds)
    except Exception as error:  # the test checks it
      results[i] = error

  threads = [
      threading.Thread(target=call, args=(i,), daemon=True)
      for i in range(len(configs))
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(120)
    assert not thread.is_alive(), 'a call hangs'
  return results


def make_configs(indices, hosts):
  address = f'localhost:{free_port()}'
  return [roll_call.HostConfig(address, hosts, i) for i in indices]


def test_all_get_the_same_list():
  rolls = call_all(make_configs([2, 0, 3, 1], 4))
  assert [roll.me for roll in rolls] == [2, 0, 3, 1]
  assert all(roll.hosts == rolls[0].hosts for roll in rolls)
  assert [row['host'] for row in rolls[0].hosts] == [0, 1, 2, 3]
  assert rolls[0].hosts[1]['name'] == socket.gethostname()
  assert rolls[0].hosts[1]['versions'] == roll_call.versions()


def test_a_single_host():
  roll = roll_call.call(roll_call.HostConfig('', 1, 0), 0.0)
  assert roll.me == 0 and len(roll.hosts) == 1


@pytest.mark.parametrize(
    'started, words',
    [
        ([0], 'only 1 of 4 hosts reported: host 0 .* hosts 1 to 3 did not'),
        ([0, 2], 'only 2 of 4 hosts reported: .* hosts 1, 3 did not'),
        ([0, 1, 2], 'only 3 of 4 hosts reported: .* host 3 did not'),
    ],
)
def test_missing_hosts_are_named_by_all(started, words, monkeypatch):
  waits, set_timeout = [], socket.socket.settimeout

  def record(connection, seconds):
    waits.append(seconds)
    set_timeout(connection, seconds)

  monkeypatch.setattr(socket.socket, 'settimeout', record)
  for error in call_all(make_configs(started, 4), seconds=1.0):
    assert isinstance(error, Stopped) and error.status == 75
    assert str(error).startswith('error: ')
    assert re.search(words, str(error)), error
  assert waits and max(waits) <= 1.0 + roll_call._SEND_TIMEOUT


def test_a_first_host_that_does_not_listen():
  (config,) = make_configs([1], 2)
  with pytest.raises(
      Stopped,
      match=rf'host 1 of 2: host 0 did not answer at '
      rf'{config.address} within 0.5 s \(Connection refused\)',
  ):
    roll_call.call(config, 0.5)


@pytest.mark.parametrize(
    'answer, words',
    [
        (b'', 'it closed the connection|reset'),
        (b'HTTP/1.1 400 Bad Request\r\n', 'another program answered|reset'),
    ],
)
def test_an_address_that_is_not_the_first_host(answer, words):
  """The first host dies while it listens, or another service has its port."""
  with socket.create_server(('localhost', 0)) as server:

    def serve():
      while True:
        try:
          with server.accept()[0] as connection:
            connection.recv(1000)
            connection.sendall(answer)
        except OSError:
          return

    threading.Thread(target=serve, daemon=True).start()
    address = f'localhost:{server.getsockname()[1]}'
    with pytest.raises(Stopped, match=words):
      roll_call.call(roll_call.HostConfig(address, 2, 1), 0.5)


def test_the_first_host_may_start_last(monkeypatch):
  first, other = make_configs([0, 1], 2)
  results, failed_once, sleep = [], threading.Event(), time.sleep

  def pause(seconds):
    failed_once.set()
    sleep(seconds)

  monkeypatch.setattr(
      roll_call,
      'time',
      types.SimpleNamespace(monotonic=time.monotonic, sleep=pause),
  )
  thread = threading.Thread(
      target=lambda: results.append(roll_call.call(other, 60.0))
  )
  thread.start()
  assert failed_once.wait(60)
  assert roll_call.call(first, 60.0).hosts == (
      thread.join() or results[0].hosts
  )


@pytest.mark.parametrize(
    'noise',
    [
        b'GET / HTTP/1.1\r\n\r\n',
        b'\n',
        b'',
        b'[1, 2]\n',
        b'{"host": 1}\n',
        b'\xff\xfe\n',
    ],
)
def test_other_programs_that_connect_are_not_hosts(noise):
  first, other = make_configs([0, 1], 2)
  results = []
  thread = threading.Thread(
      target=lambda: results.append(roll_call.call(first, 10.0))
  )
  thread.start()
  name, port = first.address.split(':')
  for _ in range(1200):  # until the first host listens
    try:
      stranger = socket.create_connection((name, int(port)))
      break
    except OSError:
      time.sleep(0.05)
  with stranger:
    stranger.sendall(noise)
    stranger.shutdown(socket.SHUT_WR)
    assert stranger.recv(100) == b''  # it gets no answer
  assert roll_call.call(other, 10.0).me == 1
  thread.join()
  assert len(results[0].hosts) == 2


def test_two_hosts_of_the_same_index():
  for error in call_all(make_configs([0, 1, 1], 3)):
    assert isinstance(error, InputError)
    assert 'host 1 reported twice' in str(error)


def test_different_numbers_of_hosts():
  first, other = make_configs([0, 1], 2)
  for error in call_all([first, other._replace(hosts=3)]):
    assert isinstance(error, InputError)
    assert ') expects 3 hosts, host 0 (' in str(error)


def test_different_versions(monkeypatch):
  mine = roll_call.versions()
  answers = iter([mine, dict(mine, jax='0.1.2')])
  monkeypatch.setattr(roll_call, 'versions', lambda: next(answers))
  for error in call_all(make_configs([0, 1], 2)):  # in either order
    assert isinstance(error, InputError)
    assert re.search(r'has jax .*\b0\.1\.2\b.*: expected the same', str(error))


def test_a_port_in_use():
  with socket.create_server(
      ('', 0), family=socket.AF_INET6, dualstack_ipv6=True
  ) as server:
    port = server.getsockname()[1]
    with pytest.raises(
        InputError,
        match=f'cannot listen at localhost:{port}: Address already in use',
    ):
      roll_call.call(roll_call.HostConfig(f'localhost:{port}', 2, 0), 1.0)


# --- find_host_config --------------------------------------------------------


def parse(*arguments):
  values = flags.FlagValues()
  connect.define_flags(values)
  values(['main', *arguments])
  return values


SLURM = {
    'SLURM_JOB_ID': '4097',
    'SLURM_STEP_NODELIST': 'gpu[3-4],x',
    'SLURM_NTASKS': '4',
    'SLURM_PROCID': '3',
    'SLURM_LOCALID': '1',
    'SLURM_STEP_NUM_TASKS': '4',
    'SLURM_STEP_NUM_NODES': '2',
}


@pytest.mark.parametrize(
    'changes, expected',
    [
        ({}, (4, 3, (1,))),  # two tasks on a node: one device each
        ({'SLURM_STEP_NUM_NODES': '4', 'SLURM_LOCALID': '0'}, (4, 3, None)),
    ],
)
def test_the_config_from_slurm(monkeypatch, changes, expected):
  environment = {**SLURM, **changes}
  for name, value in environment.items():
    monkeypatch.setenv(name, value)
  config = connect.find_host_config(parse(), environment)
  assert config == ('gpu3:61441', *expected)


def test_configs_without_a_cluster():
  assert connect.find_host_config(parse(), {'JAX_PLATFORMS': 'cpu'}).hosts == 1
  assert connect.find_host_config(
      parse('--coordinator=gpu1:8476', '--hosts=3', '--host=2'), {}
  ) == ('gpu1:8476', 3, 2, None)


@pytest.mark.parametrize(
    'address', ['gpu1', 'gpu1:', ':8476', 'gpu1:x', 'gpu1:0', 'gpu1:65536']
)
def test_a_bad_address(address):
  with pytest.raises(InputError, match='expected HOST:PORT'):
    connect.find_host_config(
        parse(f'--coordinator={address}', '--hosts=2', '--host=0'), {}
    )


def test_a_slurm_job_without_srun():
  connect.check_srun({})
  connect.check_srun({'SLURM_NTASKS': '1'})
  connect.check_srun(SLURM)
  job = {'SLURM_NTASKS': '4'}
  with pytest.raises(InputError, match='this is one host of 4: SLURM gave'):
    connect.check_srun(job)


def test_ending_after():
  done = subprocess.run(
      [
          sys.executable,
          '-c',
          'import time; from locost_jax.hosts import watchdog\n'
          'with watchdog.ending_after(60, "nothing"): pass\n'
          'with watchdog.ending_after(0.2, "the moon"): time.sleep(60)',
      ],
      capture_output=True,
      text=True,
      check=False,
  )
  assert done.returncode == 75
  assert done.stderr == (
      'error: waited 0.2 s for the moon; ended with status 75\n'
  )
