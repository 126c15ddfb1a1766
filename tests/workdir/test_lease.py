"""One process at a time trains in a bucket, by its own clock alone."""

import json
import threading
import time

import pytest

from locost_jax.config import object_store
from locost_jax.errors import InputError
from locost_jax.errors import Stopped
from locost_jax.workdir import lease as lease_lib
from tests.bucket_server import Fault

URI = 'gs://locost-test/run'
NAME = 'run/~run.lock'


@pytest.fixture(autouse=True)
def short(monkeypatch):
  for name, value in dict(RENEW=1000.0, TAKE_OVER=0.6, LOOK=0.05).items():
    monkeypatch.setattr(lease_lib, name, value)


def take():
  return lease_lib.Lease(URI, object_store.Bucket('locost-test'), NAME)


def holder(bucket):
  return json.loads(bucket.objects[NAME][0])['holder']


def test_it_is_taken_renewed_and_freed(bucket, monkeypatch):
  monkeypatch.setattr(lease_lib, 'RENEW', 0.1)
  lease = take()
  first = bucket.objects[NAME]
  assert lease.generation is None and holder(bucket).startswith('process ')
  time.sleep(0.4)
  assert bucket.objects[NAME] != first  # renewed
  with pytest.raises(InputError, match='process .* is training here: wait f'):
    take()
  lease.release(is_unused=False)
  assert holder(bucket) == ''
  again = take()
  assert again.generation
  again.release(is_unused=True)
  assert holder(bucket) == ''  # the object stays, the run is old


def test_a_silent_holder_is_replaced_and_finds_out(bucket, capfd):
  lease = take()
  begin = time.monotonic()
  other = take()
  assert time.monotonic() - begin >= 0.6
  assert capfd.readouterr().err.count('waits for up to 0.6 s whether') == 1
  lease.check()  # it does not know yet
  for call in lease.renew, lease.check, lease.renew:
    with pytest.raises(Stopped, match='lost the lease to process') as error:
      call()
    assert error.value.status == 75
  held = bucket.objects[NAME]
  lease.release(is_unused=True)
  assert bucket.objects[NAME] == held
  other.renew()
  other.release(is_unused=False)


def test_of_two_that_wait_one_gets_it(bucket):
  bucket.put(NAME, json.dumps({'holder': 'process 1 on vm'}))
  found = []

  def wait():
    try:
      found.append(take())
    except InputError as error:
      found.append(str(error))

  threads = [threading.Thread(target=wait) for _ in range(6)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  (lease,) = [x for x in found if isinstance(x, lease_lib.Lease)]
  lease.renew()
  lease.release(is_unused=False)


@pytest.mark.parametrize('text', ['', '{}', '[]', 'null', '\xff', '{"holder'])
def test_contents_that_no_process_wrote(bucket, text, capfd):
  bucket.put(NAME, text)
  lease = take()
  assert 'held by another process' in capfd.readouterr().err
  lease.release(is_unused=False)


def test_a_lost_answer_is_no_lost_lease(bucket):
  bucket.faults = [('POST', NAME, Fault(lost=True))]
  lease = take()
  bucket.faults = [('POST', NAME, Fault(lost=True))]
  lease.renew()
  # All tries are answered by nothing, although the first one succeeds.
  bucket.faults = [('POST', NAME, Fault(lost=True))] * 9
  with pytest.raises(InputError, match='try again later'):
    lease.renew()
  bucket.faults = []
  lease.renew()
  lease.release(is_unused=False)
  assert holder(bucket) == ''


def test_a_lease_that_was_removed_is_lost(bucket):
  lease = take()
  del bucket.objects[NAME]
  with pytest.raises(Stopped, match='lost the lease to nobody'):
    lease.renew()
  lease.release(is_unused=False)
  assert not bucket.objects


def test_an_outage_costs_nobody_the_lease(bucket, monkeypatch):
  monkeypatch.setattr(lease_lib, 'RENEW', 0.1)
  lease = take()
  bucket.always = Fault(503)
  time.sleep(0.5)
  lease.check()
  bucket.always = None
  lease.renew()
  lease.release(is_unused=False)
  assert holder(bucket) == ''
