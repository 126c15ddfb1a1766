"""A fake gcloud, srun, ... and trainer, for launching.py.

One program under many names, in a directory at the front of PATH. Each call
adds a line, a list, to $FAKES/calls: name, argv, and for the trainer the working
directory and the variable ADDED. $FAKES/answers is a list of
(words, [answer, ...]). A call takes the next answer, {'out': ..., 'status':
...}, of the first item whose words are in its name and arguments. Without such
an item it runs: gcloud runs the command on this machine, with a separate home
directory for each worker. $FAKES/runs lists the trainer's actions
in the same way.

The tests make hundreds of calls, so every import counts.
"""

import fcntl
import os
import sys

FAKES = os.environ['FAKES']


def note(name, argv, *more):
  with open(f'{FAKES}/calls', 'a', encoding='utf-8') as file:
    file.write(f'{[name, argv, *more]!a}\n')


def take(name, key):
  """Removes and returns an item of the first rule whose words are in key."""
  with open(f'{FAKES}/{name}', 'r+', encoding='utf-8') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    rules = eval(file.read())
    for words, items in rules:
      if words in key:
        if not items:
          sys.exit(f'no item is left for {words}')
        item = items.pop(0)
        file.seek(0)
        file.truncate()
        file.write(repr(rules))
        return item
  return None


def homes(argv):
  """Returns the home directories of the workers in gcloud's flags."""
  workers = int(os.environ['FAKE_WORKERS'])
  (worker,) = [arg for arg in argv if arg.startswith('--worker=')]
  numbers = range(workers) if worker == '--worker=all' else [int(worker[9:])]
  return [f'{FAKES}/worker{number}' for number in numbers]


def run_at(home, command):
  """Starts a command as sshd does: in the home."""
  import subprocess  # pylint: disable=g-import-not-at-top

  os.makedirs(home, exist_ok=True)
  return subprocess.Popen(
      ['bash', '-c', command],
      cwd=home,
      stdin=subprocess.DEVNULL,
      env=dict(os.environ, HOME=home),
      start_new_session=True,
  )


def gcloud(argv):
  command = [arg[10:] for arg in argv if arg.startswith('--command=')]
  if 'ssh' in argv:
    runs = [run_at(home, *command) for home in homes(argv)]
    return max(run.wait() for run in runs)
  if 'scp' in argv:
    source, target = argv[argv.index('scp') + 1 :][:2]
    for home in homes(argv):
      copy(source, f'{home}/{target.partition(":")[2]}')
  return 0


def uv(argv):
  """Makes an environment with the fake trainer as its Python."""
  os.makedirs(f'{argv[-1]}/bin')
  copy(f'{FAKES}/bin/trainer', f'{argv[-1]}/bin/python')
  return 0


def copy(source, target):
  with open(source, 'rb') as old, open(target, 'wb') as new:
    new.write(old.read())
  os.chmod(target, os.stat(source).st_mode)


def git(argv):
  os.execv(os.environ['REAL_GIT'], ['git', *argv])


def srun(argv):
  while argv[0].startswith('--'):
    argv = argv[1:]
  os.execvp(argv[0], argv)


def train(argv):
  """Returns a status, or waits for SIGTERM."""
  if argv[:1] == ['launch/check_run.py']:
    print('slice v5e:4x4 16 4')
  if argv[:2] != ['-m', 'locost_jax.main']:
    return 0
  action = take('runs', os.path.basename(os.environ['HOME']))
  if action != 'wait':
    return action
  import signal  # pylint: disable=g-import-not-at-top
  import time  # pylint: disable=g-import-not-at-top

  def end(number, _):
    note('signal', [signal.Signals(number).name])
    os._exit(128 + number)

  signal.signal(signal.SIGTERM, end)
  open(f'{FAKES}/waiting{os.getpid()}', 'x').close()
  time.sleep(20)
  return 99


def main():
  name, argv = os.path.basename(sys.argv[0]), sys.argv[1:]
  known = dict(gcloud=gcloud, git=git, uv=uv, srun=srun)
  known |= dict(python=train, trainer=train)
  does = known.get(name, lambda argv: 0)
  if argv[:1] == ['launch/check_run.py']:
    note('check', argv)
  elif does is train:
    note('trainer', argv, os.getcwd(), os.getenv('ADDED', ''))
  else:
    note(name, argv)
  answer = take('answers', ' '.join([name, *argv]))
  if answer is not None:
    print(answer.get('out', ''))
    return answer.get('status', 0)
  return does(argv)


if __name__ == '__main__':
  sys.exit(main())
