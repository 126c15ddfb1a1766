"""The roll call of hosts, and all ways in which a host may fail to answer."""

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


def call_all(seats, seconds=10.0):
  """Runs the calls of all seats at once; returns results or exceptions."""
  results = [None] * len(seats)

  def call(i):
    try:
      results[i] = roll_call.call(seats[i], seconds)
    except Exception as error:  # returned to the test
      results[i] = error

  threads = [
      threading.Thread(target=call, args=(i,), daemon=True)
      for i in range(len(seats))
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(120)
    assert not thread.is_alive(), 'a call has no end'
  return results


def seats_of(hosts_there, hosts_in_all):
  address = f'localhost:{free_port()}'
  return [roll_call.Seat(address, hosts_in_all, i) for i in hosts_there]


def test_all_get_the_same_list():
  rolls = call_all(seats_of([2, 0, 3, 1], 4))
  assert [roll.me for roll in rolls] == [2, 0, 3, 1]
  assert all(roll.hosts == rolls[0].hosts for roll in rolls)
  assert [row['host'] for row in rolls[0].hosts] == [0, 1, 2, 3]
  assert rolls[0].hosts[1]['name'] == socket.gethostname()
  assert rolls[0].hosts[1]['versions'] == roll_call.versions()


def test_a_single_host_waits_for_nobody():
  roll = roll_call.call(roll_call.Seat('', 1, 0), 0.0)
  assert roll.me == 0 and len(roll.hosts) == 1


@pytest.mark.parametrize(
    'there, words',
    [
        ([0], 'you ran on one host of 4: host 0 .* hosts 1 to 3 did not'),
        ([0, 2], 'you ran on 2 hosts of 4: .* hosts 1, 3 did not'),
        ([0, 1, 2], 'you ran on 3 hosts of 4: .* host 3 did not'),
    ],
)
def test_missing_hosts_are_named_by_all(there, words, monkeypatch):
  waits, set_timeout = [], socket.socket.settimeout

  def note(line, seconds):
    waits.append(seconds)
    set_timeout(line, seconds)

  monkeypatch.setattr(socket.socket, 'settimeout', note)
  for error in call_all(seats_of(there, 4), seconds=1.0):
    assert isinstance(error, Stopped) and error.status == 75
    assert str(error).startswith('error: ')
    assert re.search(words, str(error)), error
  # No wait is longer than the time limit and the time of one message.
  assert waits and max(waits) <= 1.0 + roll_call._SPEAKING


def test_the_first_host_does_not_listen():
  (seat,) = seats_of([1], 2)
  with pytest.raises(
      Stopped,
      match=rf'host 1 of 2: host 0 did not answer at '
      rf'{seat.address} within 0.5 s \(Connection refused\)',
  ):
    roll_call.call(seat, 0.5)


@pytest.mark.parametrize(
    'answer, words',
    [
        (b'', 'it hung up|reset'),
        (b'HTTP/1.1 400 Bad Request\r\n', 'it answered something else|reset'),
    ],
)
def test_the_first_host_is_another_service(answer, words):
  """Something accepts the connection and closes it, or answers with HTTP."""
  with socket.create_server(('localhost', 0)) as server:

    def serve():
      while True:
        try:
          with server.accept()[0] as line:
            line.recv(1000)
            line.sendall(answer)
        except OSError:
          return

    threading.Thread(target=serve, daemon=True).start()
    seat = roll_call.Seat(f'localhost:{server.getsockname()[1]}', 2, 1)
    with pytest.raises(Stopped, match=words):
      roll_call.call(seat, 0.5)


def test_the_first_host_may_start_last(monkeypatch):
  first, other = seats_of([0, 1], 2)
  results, called_in_vain, sleep = [], threading.Event(), time.sleep

  def pause(seconds):
    called_in_vain.set()
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
  assert called_in_vain.wait(60)
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
def test_other_connections_are_ignored(noise):
  first, other = seats_of([0, 1], 2)
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


def test_two_hosts_of_the_same_number():
  for error in call_all(seats_of([0, 1, 1], 3)):
    assert isinstance(error, InputError)
    assert 'host 1 is there twice' in str(error)


def test_different_numbers_of_hosts():
  first, other = seats_of([0, 1], 2)
  for error in call_all([first, other._replace(hosts=3)]):
    assert isinstance(error, InputError)
    assert ') expects 3 hosts, host 0 (' in str(error)


def test_different_versions(monkeypatch):
  mine = roll_call.versions()
  answers = iter([mine, dict(mine, jax='0.1.2')])
  monkeypatch.setattr(roll_call, 'versions', lambda: next(answers))
  for error in call_all(seats_of([0, 1], 2)):  # in any order
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
      roll_call.call(roll_call.Seat(f'localhost:{port}', 2, 0), 1.0)


# --- The seat ----------------------------------------------------------------


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
def test_a_seat_from_slurm(monkeypatch, changes, expected):
  environment = {**SLURM, **changes}
  for name, value in environment.items():
    monkeypatch.setenv(name, value)
  seat = connect.find_seat(parse(), environment)
  assert seat == ('gpu3:61441', *expected)


def test_seats_without_a_cluster():
  assert connect.find_seat(parse(), {'JAX_PLATFORMS': 'cpu'}).hosts == 1
  assert connect.find_seat(
      parse('--coordinator=gpu1:8476', '--hosts=3', '--host=2'), {}
  ) == ('gpu1:8476', 3, 2, None)


@pytest.mark.parametrize(
    'address', ['gpu1', 'gpu1:', ':8476', 'gpu1:x', 'gpu1:0', 'gpu1:65536']
)
def test_invalid_addresses(address):
  with pytest.raises(InputError, match='expected HOST:PORT'):
    connect.find_seat(
        parse(f'--coordinator={address}', '--hosts=2', '--host=0'), {}
    )


def test_a_slurm_job_without_srun():
  connect.check_srun({})
  connect.check_srun({'SLURM_NTASKS': '1'})
  connect.check_srun(SLURM)
  job = {'SLURM_NTASKS': '4'}
  with pytest.raises(InputError, match='you ran on one host of 4: SLURM gave'):
    connect.check_srun(job)


def test_a_wait_inside_jax_has_a_time_limit():
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
