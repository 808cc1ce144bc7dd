"""Changes of a running job that several tests make."""
import signal

from jobs import wait_until


def lose_one_of_three(job, rng, which):
    """kill -9 of any worker at any step: the others continue, and compute at most one step again."""
    job.await_size(3)
    job.await_step(job.step() + rng.randrange(5, 40))
    before, lost = job.epoch(), job.steps_lost()
    at = job.kill(rng.choice(job.workers()))
    took = job.await_epoch_after(before) - at
    print(f"{which}: next step after {took:.2f} s, {job.steps_lost() - lost} steps again")
    assert job.steps_lost() - lost <= 1, job.log()


def leaves_and_another_comes(job, leaver, between):
    """SIGUSR1 to one of three workers, SIGUSR2 to the launcher, so many steps after each."""
    job.kill(leaver, signal.SIGUSR1)
    job.await_size(2)
    wait_until("the worker ends", lambda: leaver not in job.workers())
    job.await_step(job.step() + between)
    job.process.send_signal(signal.SIGUSR2)
    job.await_size(3)
    job.await_step(job.step() + between)
    job.stops()
