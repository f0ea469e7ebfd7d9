"""How fast a multiprocessor (SM) is with one, two, three programs on it: a queue with a delay.

A program uses the SM's pipes for a while, then waits: for memory, for the result that its next instruction
needs. Waiting costs the others nothing; only those who want the pipes at the same time are in each other's
way. With c programs, each of which needs the pipes for the time `pipe` in a tile step and waits for `wait`,
the SM's throughput X(c), in steps per time, follows from what a program meets when it gets to the pipes:
the queue Q that there is with one program less ("mean value analysis", Reiser and Lavenberg, J. ACM 27, 1980;
exact where the times are random and exponential).

    in the queue and served:  R(c) = pipe * (1 + Q(c - 1)),  Q(0) = 0
    throughput:               X(c) = c / (wait + R(c))
    on average at the pipes:  Q(c) = X(c) * R(c)

Two measured throughputs fix pipe and wait, that of a full SM, which is the unit, and that of a program alone:
X(n) = 1, X(1) = 1 / (wait + pipe) = alone. So nothing is left to fit. X(c) is never above min(c * alone, 1),
which programs would reach that never want the pipes at once. flashlab/bench/schedule.py compares this law
with an H200.
"""

HALVINGS = 60  # a double has 53 bits


def speeds(per_sm, alone):
    """Tile steps per time of an SM with 1, 2, ... `per_sm` programs; a full SM's are 1: [alone, ..., 1].

    `alone`: from 1/per_sm (programs only wait: n do n times the work) to 1 (one keeps the SM busy). Raises
    ValueError.
    """
    if not isinstance(per_sm, int) or per_sm < 1:
        raise ValueError(f"expected programs_per_sm to be a whole number >= 1, got {per_sm!r}")
    if not 1 / per_sm <= alone <= 1:
        raise ValueError(f"expected alone from 1/{per_sm} to 1, got {alone!r}")
    if per_sm == 1:
        return [1.0]
    least, most = 0.0, 1.0  # the more of a step is at the pipes, the less is won by more programs
    for _ in range(HALVINGS):
        pipe = (least + most) / 2
        if throughputs(per_sm, pipe, 1 / alone - pipe)[-1] < 1:
            most = pipe
        else:
            least = pipe
    between = throughputs(per_sm, most, 1 / alone - most)[1:-1]
    return [float(alone), *between, 1.0]


def throughputs(programs, pipe, wait):
    """X(1), ..., X(programs): rounds per time of a closed queue, from the times `pipe` and `wait`."""
    queue, found = 0.0, []
    for c in range(1, programs + 1):
        there = pipe * (1 + queue)
        found.append(c / (wait + there))
        queue = found[-1] * there
    return found
