"""What goes wrong while ranks work together."""


class HorovodInternalError(RuntimeError):
    """An operation failed for a reason outside this rank's arguments: a rank was lost, gave up, or a time limit passed.

    The message names the operation and the rank. After it this job cannot be used any more: hvd.shutdown() and hvd.init(), or, in
    elastic training, what hvd.elastic.run does.
    """


class HostsUpdatedInterrupt(RuntimeError):
    """Hosts were added or removed; elastic training goes on from the current state with the new set of ranks.

    skip_sync is true when hosts were only removed: then no new worker needs the state.
    """

    def __init__(self, skip_sync=False):
        super().__init__("the set of hosts has changed")
        self.skip_sync = skip_sync
