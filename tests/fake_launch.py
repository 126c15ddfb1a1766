"""Stands in for gcloud, ssh, srun, ... and for the trainer, in test_launch.py.

One program under many names, in a directory that comes first on PATH. Each call
adds a line to $FAKES/calls.jsonl, {"name", "argv", and for the trainer "cwd"}.
$FAKES/answers.json says what is answered: rules [words, [answer, ...]], tried
in order; words is found in the name and arguments, and each call takes one
answer off its rule, {"out": ..., "status": ...}, `None` standing for the last
one being kept for ever. What no rule is for is done: gcloud and ssh run the
command on this machine, every worker or host in a home directory of its own.
"""

import fcntl
import json
import os
from pathlib import Path
import shutil
import signal
import subprocess
import sys
import time

FAKES = Path(os.environ['FAKES'])


def note(**call):
  with open(FAKES / 'calls.jsonl', 'a', encoding='utf-8') as file:
    file.write(json.dumps(call) + '\n')


def take(file, key):
  """Takes the first item off the list that {key: list} has, or returns None."""
  with open(FAKES / 'lock', 'w', encoding='utf-8') as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    rules = json.loads((FAKES / file).read_text())
    for words, answers in rules:
      if words in key:
        if not answers:
          sys.exit(f'no answer is left for {words}')
        answer = answers.pop(0)
        (FAKES / file).write_text(json.dumps(rules))
        return answer
  return None


def homes(argv):
  """The home directories of the workers that gcloud's flags name."""
  workers = int(os.environ['FAKE_WORKERS'])
  worker, = [arg for arg in argv if arg.startswith('--worker=')]
  numbers = range(workers) if worker == '--worker=all' else [int(worker[9:])]
  return [FAKES / f'worker{number}' for number in numbers]


def run_at(home, command):
  """Starts a command as a connection does: from home, SIGINT not ignored."""
  signal.signal(signal.SIGINT, signal.SIG_DFL)
  home.mkdir(exist_ok=True)
  return subprocess.Popen(
      ['bash', '-c', command], cwd=home, stdin=subprocess.DEVNULL,
      env=dict(os.environ, HOME=str(home)), start_new_session=True)


def gcloud(argv):
  command = [arg[10:] for arg in argv if arg.startswith('--command=')]
  if 'ssh' in argv:
    runs = [run_at(home, *command) for home in homes(argv)]
    return max(run.wait() for run in runs)
  if 'scp' in argv:
    source, target = argv[argv.index('scp') + 1:][:2]
    for home in homes(argv):
      shutil.copy(source, home / target.partition(':')[2])
  return 0


def ssh(argv):
  *_, host, command = argv
  status = run_at(FAKES / host, command).wait()
  return 128 - status if status < 0 else status


def uv(argv):
  """Makes an environment whose Python is the trainer below."""
  target = Path(argv[-1]) / 'bin'
  target.mkdir(parents=True)
  shutil.copy(FAKES / 'bin' / 'trainer', target / 'python')
  return 0


def srun(argv):
  while argv[0].startswith('--'):
    argv = argv[1:]
  os.execvp(argv[0], argv)


def train(argv):
  """What $FAKES/runs.json says: a status, or to wait for a signal, or hang."""
  if argv[:2] != ['-m', 'locost_jax.main']:
    return 0
  hosts = [int(arg[8:]) for arg in argv if arg.startswith('--hosts=')]
  host = [int(arg[7:]) for arg in argv if arg.startswith('--host=')]
  assert len(hosts) == len(host) <= 1 and all(
      0 <= a < b for a, b in zip(host, hosts)), argv
  assert len([a for a in argv if a.startswith('--coordinator=')]) == len(host)
  action = take('runs.json', f'host={host} {Path.home().name}')
  if isinstance(action, int):
    return action
  def end(number, _):
    note(name='signal', argv=[signal.Signals(number).name])
    if action == 'wait':
      os._exit(128 + number)
  signal.signal(signal.SIGTERM, end)
  signal.signal(signal.SIGINT, end)
  (FAKES / f'waiting{os.getpid()}').touch()
  time.sleep(20)
  return 99


def main():
  name, argv = Path(sys.argv[0]).name, sys.argv[1:]
  does = dict(gcloud=gcloud, ssh=ssh, uv=uv, srun=srun, python=train,
              trainer=train).get(name, lambda argv: 0)
  if does is train:
    note(name='trainer', argv=argv, cwd=os.getcwd(), added=os.getenv('ADDED'))
  else:
    note(name=name, argv=argv)
  answer = take('answers.json', ' '.join([name, *argv]))
  if answer is not None:
    print(answer.get('out', ''))
    return answer.get('status', 0)
  return does(argv)


if __name__ == '__main__':
  sys.exit(main())
