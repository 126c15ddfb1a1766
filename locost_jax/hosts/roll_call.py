"""A roll call: the hosts of a run report before JAX connects them.

JAX waits silently for a missing host and then aborts the process, with a stack
that does not name the host. So the first host first listens at the port that
JAX will use, the others send their data, and all get the same list. Every host
prints a message if one is missing, reports twice or has other versions.
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

# Their versions must agree, or the hosts compile different programs.
PACKAGES = ('jax', 'jaxlib', 'flax', 'optax')
_SEND_TIMEOUT = 5.0  # seconds that a host may take to send its line
_MAX_LINE = 1 << 20  # bytes


class HostConfig(NamedTuple):
  """The index of this process in a run, and how to reach the first one.

  address: HOST:PORT at which the first host listens.
  hosts: number of hosts.
  host: index of this one, from 0 on.
  local_devices: indices of the machine's devices that it uses; None: all.
  """

  address: str
  hosts: int
  host: int
  local_devices: tuple[int, ...] | None = None


class Roll(NamedTuple):
  """The hosts of a run.

  hosts: a row per host, in order: {'host', 'hosts', 'name', 'versions'}.
  me: index of this process.
  """

  hosts: list[dict]
  me: int


def call(config, seconds):
  """Waits until all hosts have reported.

  Args:
    config: HostConfig of this process.
    seconds: how long to wait.

  Returns:
    A Roll.

  Raises:
    Stopped: a host is missing; another try may help (status 75).
    InputError: two hosts have one index, or the number of hosts or the versions
      differ.
  """
  me = dict(
      host=config.host,
      hosts=config.hosts,
      name=socket.gethostname(),
      versions=versions(),
  )
  deadline = time.monotonic() + seconds
  if config.hosts == 1:
    rows = [me]
  elif config.host == 0:
    rows = _gather(config, me, deadline)
  else:
    rows = _report(config, me, deadline, seconds)
  _check(config, rows, seconds)
  return Roll(sorted(rows, key=lambda row: row['host']), config.host)


def versions():
  """Returns {package: version} of locost_jax and PACKAGES."""
  return dict(
      locost_jax=locost_jax.__version__, **versions_lib.installed(PACKAGES)
  )


def _gather(config, me, deadline):
  """On the first host: collects all rows, then sends the list to all."""
  rows, connections = [me], []
  try:
    with _listen(int(config.address.rsplit(':', 1)[1])) as server:
      while len(rows) < config.hosts:
        server.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
          connection = server.accept()[0]
        except TimeoutError:
          break
        if row := _receive_row(connection):
          rows.append(row)
          connections.append(connection)
        else:
          connection.close()  # not a host of the run; a port scanner, say
      for connection in connections:
        try:
          connection.sendall(_encode(rows))
        except OSError:
          pass  # JAX will report this host as missing
  except OSError as error:
    raise InputError(
        f'host 0 cannot listen at {config.address}: '
        f'{os.strerror(error.errno)}; expected a free port of this machine'
    ) from error
  finally:
    for connection in connections:
      connection.close()
  return rows


def _listen(port):
  if socket.has_dualstack_ipv6():
    return socket.create_server(
        ('', port), family=socket.AF_INET6, dualstack_ipv6=True
    )
  return socket.create_server(('', port))


def _report(config, me, deadline, seconds):
  """On any other host: sends its row and waits for the list."""
  name, port = config.address.rsplit(':', 1)
  while True:
    try:
      connection = socket.create_connection(
          (name.strip('[]'), int(port)),
          max(min(deadline - time.monotonic(), _SEND_TIMEOUT), 0.001),
      )
      with connection:
        connection.sendall(_encode(me))
        # The first host began to wait before this one, so it gives up earlier.
        connection.settimeout(seconds + _SEND_TIMEOUT)
        if rows := _read(connection):
          return rows
    except OSError as error:
      reason = error.strerror or str(error)
    except ValueError:
      reason = 'another program answered'
    else:
      reason = 'it closed the connection'
    if time.monotonic() > deadline:
      raise Stopped(
          f'error: host {config.host} of {config.hosts}: host 0 did not answer '
          f'at {config.address} within {seconds:g} s ({reason}): expected the '
          'same command to run there, and no firewall to block that port',
          watchdog.STATUS,
      )
    time.sleep(0.2)


def _receive_row(connection):
  """Returns the row that a host sends, or None if it is not one."""
  connection.settimeout(_SEND_TIMEOUT)
  try:
    row = _read(connection)
    return (
        row
        if isinstance(row, dict)
        and row.keys() == {'host', 'hosts', 'name', 'versions'}
        else None
    )
  except (OSError, ValueError):
    return None


def _read(connection):
  with connection.makefile('rb') as file:
    return json.loads(file.readline(_MAX_LINE) or 'null')


def _encode(value):
  return json.dumps(value).encode() + b'\n'


def _check(config, rows, seconds):
  """Raises unless each host has reported once and all agree."""
  first = rows[0]
  for row in rows:
    if row['hosts'] != first['hosts']:
      raise InputError(
          f"{_describe(row)} expects {row['hosts']} hosts, "
          f"{_describe(first)} {first['hosts']}: expected the same"
      )
    for name, version in first['versions'].items():
      if row['versions'].get(name) != version:
        raise InputError(
            f"{_describe(row)} has {name} {row['versions'].get(name)}, "
            f'{_describe(first)} {version}: expected the same'
        )
  indices = [row['host'] for row in rows]
  for host in set(indices):
    if indices.count(host) > 1:
      names = ' and '.join(row['name'] for row in rows if row['host'] == host)
      raise InputError(
          f'host {host} reported twice, from {names}: expected '
          f'each of 0 to {config.hosts - 1} once'
      )
  missing = sorted(set(range(config.hosts)) - set(indices))
  if missing:
    names = ', '.join(_describe(row) for row in rows)
    raise Stopped(
        f'error: only {len(rows)} of {config.hosts} hosts reported: {names} '
        f'reached {config.address} within {seconds:g} s, {_list(missing)} did '
        'not. Run the same command on every host',
        watchdog.STATUS,
    )


def _describe(row):
  return f"host {row['host']} ({row['name']})"


def _list(hosts):
  """Returns 'host 1', 'hosts 1 to 3' or 'hosts 1, 3'."""
  if len(hosts) == 1:
    return f'host {hosts[0]}'
  if len(hosts) > 2 and hosts[-1] - hosts[0] == len(hosts) - 1:
    return f'hosts {hosts[0]} to {hosts[-1]}'
  return f"hosts {', '.join(map(str, hosts))}"
