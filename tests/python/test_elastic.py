"""Elastic state: what is committed comes back, what rank 0 has reaches all, every sample of an epoch is seen once."""
import itertools

import pytest
import torch

import cohort.torch as hvd
from cohort.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from cohort.torch.elastic import ElasticSampler, HostUpdateResult, ObjectState, TorchState
from cohort.torch.elastic import state as states
from launch import launch, ranks

EVERY = (1, 2, 3, 4)
setup_rank, teardown_rank = hvd.init, hvd.shutdown


def parts(value):
    model = torch.nn.Linear(2, 2)
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(value)
    return model, torch.optim.SGD(model.parameters(), lr=0.1 * (value + 1), momentum=0.9)


def filled(model, value):
    return all((p == value).all() for p in model.parameters())


@ranks(*EVERY)
def test_state_is_shared_committed_and_restored():
    model, optimizer = parts(hvd.rank() + 1.0)
    state = TorchState(model=model, optimizer=optimizer, batch=20 + hvd.rank(), epoch=10 + hvd.rank(), log=[hvd.rank()])
    state.sync()
    assert filled(model, 1.0) and optimizer.param_groups[0]["lr"] == pytest.approx(0.2)
    assert (state.batch, state.epoch, state.log) == (20, 10, [0])

    def change():
        with torch.no_grad():
            for p in model.parameters():
                p.fill_(7.0)
        optimizer.param_groups[0]["lr"] = 5.0
        state.batch, state.epoch = 21, 11
        state.log.append("changed")

    change()
    state.restore()
    assert filled(model, 1.0) and optimizer.param_groups[0]["lr"] == pytest.approx(0.2)
    assert (state.batch, state.epoch, state.log) == (20, 10, [0])
    change()
    state.commit()
    state.restore()
    assert filled(model, 7.0) and optimizer.param_groups[0]["lr"] == 5.0 and state.log == [0, "changed"]
    assert state.model is model and state.optimizer is optimizer


@ranks(2)
def test_momentum_reaches_a_rank_that_has_none():
    model, optimizer = parts(1.0)
    if hvd.rank() == 0:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    TorchState(model=model, optimizer=optimizer).sync()
    buffers = hvd.allgather_object([s["momentum_buffer"].tolist() for s in optimizer.state.values()])
    assert buffers[0] == buffers[1] and buffers[0]


@ranks(1, 2)
def test_another_model_can_take_the_place():
    state = TorchState(model=parts(1.0)[0])
    other, _ = parts(3.0)
    state.model = other
    with torch.no_grad():
        other.bias.fill_(9.0)
    state.restore()
    assert state.model is other and filled(other, 3.0)
    assert TorchState(epoch=1).model is None
    with pytest.raises(AttributeError, match="no 'nothing'"):
        state.nothing


@ranks(2)
def test_handlers_for_kinds_of_ones_own():
    class Counter:
        count = 0

    class CounterHandler(states.StateHandler):
        kept = 0

        def save(self):
            self.kept = self.value.count

        def restore(self):
            self.value.count = self.kept

        def sync(self):
            self.value.count = hvd.broadcast_object(self.value.count)
            self.save()

    before = states.get_handler_registry()
    states.set_handler_registry([(Counter, CounterHandler)] + before)
    try:
        counter = Counter()
        counter.count = 5 + hvd.rank()
        state = TorchState(counter=counter)
        state.sync()
        assert counter.count == 5
        counter.count = 6
        state.restore()
        assert counter.count == 5 and state.counter is counter
    finally:
        states.set_handler_registry(before)


@ranks(2, 3)
def test_news_of_rank_0_interrupt_every_rank_once():
    state = ObjectState(epoch=0)
    state.commit()
    if hvd.rank() == 0:
        state.on_hosts_updated(1, HostUpdateResult.added)
    with pytest.raises(HostsUpdatedInterrupt) as seen:
        state.commit()
    assert not seen.value.skip_sync
    state.commit()
    if hvd.rank() == 0:
        state.on_hosts_updated(2, HostUpdateResult.removed)
    with pytest.raises(HostsUpdatedInterrupt) as seen:
        state.check_host_updates()
    assert seen.value.skip_sync


@ranks(1, 2, 3)
def test_run_goes_on_after_a_change_of_hosts():
    state = TorchState(model=parts(1.0)[0], batch=0)
    seen, resets = [], []
    state.register_reset_callbacks([lambda: resets.append(hvd.size())])

    @hvd.elastic.run
    def train(state, last):
        for state.batch in range(state.batch, last):
            seen.append(state.batch)
            if state.batch == 3 and not resets and hvd.rank() == 0:
                state.on_hosts_updated(1)
            state.commit()
        return "trained"

    assert train(state, 6) == "trained"
    assert resets == [hvd.size()] and seen == [0, 1, 2, 3, 3, 4, 5]


@ranks(1, 2, 3)
def test_run_goes_back_to_the_commit_after_a_failure():
    model, _ = parts(1.0)
    state, failed = TorchState(model=model, batch=0), []

    @hvd.elastic.run
    def train(state):
        while state.batch < 6:
            with torch.no_grad():
                model.bias.add_(1.0)
            state.batch += 1
            if state.batch % 2 == 0:
                state.commit()
            elif state.batch == 5 and not failed:
                failed.append(state.batch)
                raise HorovodInternalError("a stall, say")
        return hvd.allreduce(model.bias.detach(), op=hvd.Sum).tolist()

    assert train(state) == [7.0 * hvd.size()] * 2 and failed == [5]


@ranks(3)
def test_process_sets_are_there_again_after_a_reset():
    for dynamic in (False, True):
        hvd.shutdown()
        pair = hvd.ProcessSet([0, 2])
        hvd.init(process_sets="dynamic" if dynamic else [pair])
        if dynamic:
            hvd.add_process_set(pair)
        hvd.elastic.reset()
        assert pair.included() == (hvd.rank() != 1)
        if pair.included():
            assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=pair).item() == 2
    hvd.shutdown()
    hvd.init()


@ranks(1)
def test_ranks_that_cannot_connect_again_get_the_reason():
    from cohort.elastic import run_fn

    def nobody_comes():
        raise HorovodInternalError("rank 1 has not come")

    @lambda function: run_fn(function, nobody_comes)
    def train(state):
        raise HorovodInternalError("rank 1 was lost")

    with pytest.raises(HorovodInternalError, match="rank 1 has not come.*last checkpoint"):
        train(ObjectState(epoch=0))


@ranks(*EVERY)
def test_the_sampler_shares_out_every_sample_once():
    for shuffle in (False, True):
        sampler = ElasticSampler(list(range(24)), shuffle=shuffle)
        assert len(sampler) == 24 // hvd.size() == len(list(sampler))
        assert sorted(itertools.chain(*hvd.allgather_object(list(sampler)))) == list(range(24))
        before = list(sampler)
        sampler.set_epoch(1)
        assert (before != list(sampler)) == shuffle


@ranks(*EVERY)
def test_the_sampler_goes_on_with_what_no_rank_has_seen():
    sampler = ElasticSampler(list(range(24)))
    sampler.set_epoch(3)
    seen = []
    for turn, batch in enumerate(itertools.batched(sampler, 2) if hasattr(itertools, "batched") else zip(*[iter(sampler)] * 2)):
        seen += batch
        sampler.record_batch(turn, 2)
        if turn == 1:
            break
    assert sampler.processed_num == 4 * hvd.size() and len(sampler) == 24 // hvd.size()  # until reset()
    state = TorchState(sampler=sampler)
    state.sync()
    seen += list(sampler)
    assert sorted(itertools.chain(*hvd.allgather_object(seen))) == list(range(24))
    sampler.record_batch(0, 1000)
    sampler.reset()
    assert sampler.processed_num == 24 and not list(sampler) and len(sampler) == 0


@ranks(3, 4)
def test_the_last_samples_repeat_so_that_ranks_have_as_many():
    sampler = ElasticSampler(list(range(5)))
    mine = hvd.allgather_object(list(sampler))
    assert {len(indices) for indices in mine} == {len(sampler)} and set(itertools.chain(*mine)) == set(range(5))
    assert len(ElasticSampler([1])) == 1 and len(list(ElasticSampler([1]))) == 1


@ranks(1, 2)
def test_a_restored_sampler_forgets_what_was_not_committed():
    sampler = ElasticSampler(list(range(12)))
    state = TorchState(sampler=sampler)
    sampler.record_batch(0, 2)
    state.commit()
    sampler.record_batch(1, 2)
    state.restore()
    assert sampler.processed_num == 2 * hvd.size()


FAILURE = """
import torch, cohort.torch as hvd
hvd.init()
state, tried = hvd.elastic.ObjectState(step=0), []

@hvd.elastic.run
def train(state):
    tried.append(state.step)
    while state.step < 4:
        if state.step == 2 and len(tried) == 1 and hvd.rank() == 0:
            raise hvd.HorovodInternalError('this rank gives up')
        total = hvd.allreduce(torch.ones(1), op=hvd.Sum, name='total')
        assert total.item() == hvd.size()
        state.step += 1
        state.commit()
    return tried

print('tried', train(state), flush=True)
"""


def test_a_rank_that_gives_up_brings_all_back_to_the_commit():
    done = launch(2, FAILURE, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["tried [0, 2]"] * 2
