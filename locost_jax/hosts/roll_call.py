"""A roll call: the hosts of a run report before JAX connects them.

JAX waits in silence for a host that does not come and then aborts the process,
with a stack of its own and no word about which host it was. So the first host
listens at the port that JAX will have after it, the others say who they are,
and all get the same list; a host that is missing, is there twice or has other
versions is a line on every one of them.
"""

import json
import os
import socket
import time
from typing import NamedTuple

import locost_jax
from locost_jax.command_line import versions as versions_lib
from locost_jax.errors import InputError
from locost_jax.errors import Stopped
from locost_jax.hosts import watchdog

# What must be the same on all hosts, or their programs are not.
PACKAGES = ('jax', 'jaxlib', 'flax', 'optax')
_SPEAKING = 5.0  # seconds that a host may take to say its line
_LONGEST = 1 << 20  # bytes of a line


class Seat(NamedTuple):
  """The place of this process among those of a run.

  address: HOST:PORT at which the first of them listens.
  hosts: how many there are.
  host: which of them this is, from 0 on.
  local_devices: indices of the machine's devices that are its own; None: all.
  """

  address: str
  hosts: int
  host: int
  local_devices: tuple[int, ...] | None = None


class Roll(NamedTuple):
  """Who is there.

  hosts: what each says of itself, in order: {'host', 'hosts', 'name',
    'versions'}.
  me: which of them this process is.
  """

  hosts: list[dict]
  me: int


def call(seat, seconds):
  """Waits until all hosts are there.

  Args:
    seat: a Seat.
    seconds: to wait for them.

  Returns:
    A Roll.

  Raises:
    Stopped: a host did not come; another try may help (status 75).
    InputError: two are the same host, or they differ where they must not.
  """
  me = dict(
      host=seat.host,
      hosts=seat.hosts,
      name=socket.gethostname(),
      versions=versions(),
  )
  deadline = time.monotonic() + seconds
  if seat.hosts == 1:
    there = [me]
  elif seat.host == 0:
    there = _gather(seat, me, deadline)
  else:
    there = _report(seat, me, deadline, seconds)
  _check(seat, there, seconds)
  return Roll(sorted(there, key=lambda row: row['host']), seat.host)


def versions():
  """{package: version} of this one and of PACKAGES."""
  return dict(
      locost_jax=locost_jax.__version__, **versions_lib.installed(PACKAGES)
  )


def _gather(seat, me, deadline):
  """The first host: collects all reports, then sends the result to all."""
  there, lines = [me], []
  try:
    with _listen(int(seat.address.rsplit(':', 1)[1])) as server:
      while len(there) < seat.hosts:
        server.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
          line = server.accept()[0]
        except TimeoutError:
          break
        if row := _hear(line):
          there.append(row)
          lines.append(line)
        else:
          line.close()  # somebody else's, a port scanner's
      for line in lines:
        try:
          line.sendall(_written(there))
        except OSError:
          pass  # it will be missed when JAX connects
  except OSError as error:
    raise InputError(
        f'host 0 cannot listen at {seat.address}: '
        f'{os.strerror(error.errno)}; expected a free port of this machine'
    ) from error
  finally:
    for line in lines:
      line.close()
  return there


def _listen(port):
  if socket.has_dualstack_ipv6():
    return socket.create_server(
        ('', port), family=socket.AF_INET6, dualstack_ipv6=True
    )
  return socket.create_server(('', port))


def _report(seat, me, deadline, seconds):
  """Any other host: says its line and waits for the list."""
  name, port = seat.address.rsplit(':', 1)
  while True:
    try:
      line = socket.create_connection(
          (name.strip('[]'), int(port)),
          max(min(deadline - time.monotonic(), _SPEAKING), 0.001),
      )
      with line:
        line.sendall(_written(me))
        # The first host was there before this one, so it gives up earlier.
        line.settimeout(seconds + _SPEAKING)
        if there := _read(line):
          return there
    except OSError as error:
      reason = error.strerror or str(error)
    except ValueError:
      reason = 'it answered something else'
    else:
      reason = 'it hung up'
    if time.monotonic() > deadline:
      raise Stopped(
          f'error: host {seat.host} of {seat.hosts}: host 0 did not answer at '
          f'{seat.address} within {seconds:g} s ({reason}): expected the same '
          'command to run there, and no firewall before that port',
          watchdog.STATUS,
      )
    time.sleep(0.2)


def _hear(line):
  """The row that a host sends, or None."""
  line.settimeout(_SPEAKING)
  try:
    row = _read(line)
    return (
        row
        if isinstance(row, dict)
        and row.keys() == {'host', 'hosts', 'name', 'versions'}
        else None
    )
  except (OSError, ValueError):
    return None


def _read(line):
  with line.makefile('rb') as file:
    return json.loads(file.readline(_LONGEST) or 'null')


def _written(value):
  return json.dumps(value).encode() + b'\n'


def _check(seat, there, seconds):
  """Raises unless each host is there once and all agree."""
  first = there[0]
  for row in there:
    if row['hosts'] != first['hosts']:
      raise InputError(
          f"{_who(row)} expects {row['hosts']} hosts, "
          f"{_who(first)} {first['hosts']}: expected the same"
      )
    for name, version in first['versions'].items():
      if row['versions'].get(name) != version:
        raise InputError(
            f"{_who(row)} has {name} {row['versions'].get(name)}, "
            f'{_who(first)} {version}: expected the same'
        )
  found = [row['host'] for row in there]
  for host in set(found):
    if found.count(host) > 1:
      names = ' and '.join(row['name'] for row in there if row['host'] == host)
      raise InputError(
          f'host {host} is there twice, on {names}: expected '
          f'each of 0 to {seat.hosts - 1} once'
      )
  missing = sorted(set(range(seat.hosts)) - set(found))
  if missing:
    names = ', '.join(_who(row) for row in there)
    raise Stopped(
        f'error: you ran on {_count(len(there))} of {seat.hosts}: {names} came '
        f'to {seat.address} within {seconds:g} s, {_list(missing)} did not. '
        'Expected the same command on every host',
        watchdog.STATUS,
    )


def _who(row):
  return f"host {row['host']} ({row['name']})"


def _count(hosts):
  return 'one host' if hosts == 1 else f'{hosts} hosts'


def _list(hosts):
  """'host 1' or 'hosts 1 to 3' or 'hosts 1, 3'."""
  if len(hosts) == 1:
    return f'host {hosts[0]}'
  if len(hosts) > 2 and hosts[-1] - hosts[0] == len(hosts) - 1:
    return f'hosts {hosts[0]} to {hosts[-1]}'
  return f"hosts {', '.join(map(str, hosts))}"
