"""What a kernel of several warpgroups can get wrong: each mistake has a name, and says who and where."""


class KernelFault(Exception):
    """The kernel does something that a GPU would not forgive. The subclasses are the kinds of mistake."""


class Deadlock(KernelFault):
    """No partition can run, and no copy is in flight that could change that."""


class ReadTooEarly(KernelFault):
    """A tile is read although nothing that the reader waited for says that it is there."""


class Overwritten(KernelFault):
    """A tile is overwritten although nothing that the writer waited for says that it has been read."""


class NotWaitedFor(KernelFault):
    """A result is used, or the program ends, while what makes it may still be in flight."""


class WrongArrivals(KernelFault):
    """More arrivals on a barrier than its count allows, or a barrier that was never initialised."""


class MissedPhase(KernelFault):
    """A barrier may end two phases before a partition has seen the end of the first: a wait names its phase
    by parity only, so that it would then wait for another one.
    """


class WrongBytes(KernelFault):
    """The copies on a barrier bring another number of bytes than was expected there."""


class MissingFence(KernelFault):
    """An asynchronous unit reads shared memory that was written by ordinary stores, without a fence."""


class OutOfBounds(KernelFault):
    """A load or a store outside of its tensor."""


KINDS = (
    Deadlock, ReadTooEarly, Overwritten, NotWaitedFor, WrongArrivals, MissedPhase, WrongBytes, MissingFence,
    OutOfBounds,
)  # fmt: skip
