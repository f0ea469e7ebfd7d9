"""What the tests of widgets that compute in JavaScript share: random problems, and JavaScript run by Node."""

import json
import random
import subprocess

from test_softmax_stepper import node

from flashlab import Problem
from flashlab.widgets import _base

PROGRAM = """
const fs = await import("node:fs");
const source = process.argv.slice(1).map((path) => fs.readFileSync(path, "utf8")).join("\\n");
const js = await import("data:text/javascript;base64," + Buffer.from(source).toString("base64"));
const given = JSON.parse(fs.readFileSync(0, "utf8"));
"""


def in_node(files, expression, given):
    """The JSON value of a JavaScript `expression`; `js` is the module of `files`, `given` the input."""
    paths = [str(_base._HERE / name) for name in files]
    done = subprocess.run(
        [node(), "--input-type=module", "-e", f"{PROGRAM}console.log(JSON.stringify({expression}))", *paths],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def problems(count, seed):
    """Random problems: GQA, masks, ragged ends, sizes from one token to many."""
    rng = random.Random(seed)
    for _ in range(count):
        heads = rng.choice([1, 2, 3, 8])
        yield Problem(
            B=rng.randint(1, 4),
            Hkv=heads,
            Hq=heads * rng.choice([1, 2, 4]),
            Nq=rng.choice([1, 5, 64, 100, 700, 4096]),
            Nk=rng.choice([1, 64, 130, 1000, 5000, 70000]),
            D=rng.choice([16, 64, 80, 128]),
            causal=rng.choice([False, True, "bottom-right"]),
            dtype=rng.choice(["float16", "bfloat16", "float32"]),
            block_q=rng.choice([16, 64, 100]),
            block_k=rng.choice([16, 64, 128]),
        )
