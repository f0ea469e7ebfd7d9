# title: Start here
# minutes: 15

# %% [markdown] tags=["slide"]
# # Start here
#
# flashlab teaches FlashAttention by letting you run it, take it apart and see every byte that it keeps or
# throws away. Bring Python, matrix products and softmax. You do not need a GPU.
#
# This page takes 15 minutes: first a measurement on your own machine, then how a lesson works, where to go
# from here, and what this machine can run. Shift+Enter runs a cell and moves on.
#
# 中文：去掉下一格最后一行开头的 `#` 再运行，提问、复习、检查和动画都会变成中文（课文仍是英文）。

# %% tags=["setup"]
import flashlab as fl
from flashlab.bench import sdpa_paths

# fl.lang("zh")  # without the first "#": questions, reviews, checks and widgets in Chinese

# %% [markdown] tags=["fast", "slide"]
# ## 1. One formula, two programs (5 min)
#
# PyTorch can compute attention, softmax(q kᵀ / √d) v, in more than one way. The *math* path does what the
# formula says, one operation after another. The *flash* path is the algorithm this course is about. We give
# both the same random input: 4,096 tokens, 8 heads, d = 64, float32. That makes q, k, v and the output o 8
# MiB each.
#
# For training, each path keeps some numbers from the forward pass until the backward pass needs them. Guess
# before you look: you will remember the answer better, above all if the guess was wrong.

# %% tags=["fast", "predict"]
fl.predict(
    "S-p01",
    "How many times as much memory does the math path keep for the backward pass as the flash path?",
    unit="times",
)

# %% tags=["fast", "reveal"]
paths = sdpa_paths.compare()  # about 10 seconds on two cores
display(paths)
fl.reveal("S-p01", round(paths.ratio, 1))

# %% [markdown] tags=["fast", "slide"]
# - **The same formula and the same answer.** Flash attention is not an approximation. It adds in another
#   order, so the two outputs differ in the last digits that float32 has.
# - **Not the same memory.** Math keeps the attention weights, one number for every *pair* of tokens; flash
#   keeps one number for every *token*, the smallest piece in the table, and works the weights out again,
#   block by block, on the way back.
# - **Not the same time.** Flash does more arithmetic in the backward pass, and usually wins all the same:
#   the matrix of weights never travels to memory and back.

# %%
print(sdpa_paths.readable_bytes(paths.weights_bytes), "of weights in the math path")
print(sdpa_paths.readable_bytes(paths.lse_bytes), "in their place in the flash path")
print(paths.weights_bytes // paths.lse_bytes, "times less, with", paths.n, "tokens")

# %% [markdown]
# That last factor is N itself: N numbers in a row of weights, one in their place. The ratio of the whole is
# smaller, since both paths need q, k and v again, and flash also o. How does the ratio of the whole grow?

# %% tags=["predict"]
fl.predict(
    "S-p02",
    "When N doubles, that ratio …",
    choices=["stays the same", "nearly doubles", "nearly quadruples"],
)

# %% tags=["reveal"]
for n in (512, 1024, 2048):
    print(n, round(sdpa_paths.compare(n, repeats=1, quiet=True).ratio, 1))
fl.reveal("S-p02", "nearly doubles")
# > 512 2.7
# > 1024 4.7
# > 2048 8.7
# > ...

# %% [markdown]
# With 100,000 tokens, which language models do take, the weights of these 8 heads would fill about 300 GiB,
# for each layer. How a softmax can be computed without ever holding a whole row of weights is the subject
# of lesson C.

# %% [markdown] tags=["fast"]
# ## 2. How a lesson works (3 min)
#
# You met the first habit above: **predict**, then look. The guess is stored with the result, and where many
# people err, the answer says what the guess was thinking. "Run all" never waits for you: without a guess
# the answer is simply shown.
#
# The second: **review**. A few short questions, one at a time; answer in your head, turn the card, say
# honestly whether you knew it (keys: J knew it, F not yet). What you did not know returns at the next stop.
# About six seconds each:

# %% tags=["fast", "review"]
fl.review("S-1")

# %% [markdown]
# The third: **check**. Exercises ask for a function, and `fl.check` tries it on inputs that catch the usual
# mistakes. It tells you what it tried, what came back, and often which line is missing. Here is a wrong
# answer to lesson C's exercise: it forgets to convert its running sum of values when the running maximum
# moves. (You will understand this sentence in an hour.)

# %%
wrong = fl.checks.mutants.load("online_softmax")["acc is not converted"]
fl.check("online_softmax")(wrong)
# > ✓ 1/7 ...
# > ✗ 2/7 ... 7.6 ...
# > False

# %% [markdown]
# Stuck? `fl.hint("online_softmax")` gives one hint at a time, and `fl.solution("online_softmax")` the
# answer. Exercises never lock what follows: skip one and come back.

# %% [markdown] tags=["fast"]
# ## 3. Your route (3 min)
#
# What is here today: this page, [lesson C, the forward pass and online softmax](03_C.ipynb), its exercise
# [online_softmax](../exercises/online_softmax.ipynb), a [gallery of seven widgets](widgets.ipynb) that show
# tiles, bytes, SMs and backends at work, and a trainer with the first questions of the bank: `flashlab quiz` and
# `flashlab interview` in a terminal. Lessons A (the bottleneck), B (memory), D (backward), E (hardware),
# F (models) and G (benchmarks) are in preparation.
#
# - **You are learning on your own** (about 2 hours in all): this page, then lesson C in two sittings of 47
#   and 43 minutes, with every prediction and review; the exercise is part of the first. The next day, five
#   minutes for the reviews again.
# - **You are preparing for an interview** (three evenings of 40, 50 and 25 minutes): first lesson C's ⚡
#   sections and the exercise; then the rest of C, its last section aloud and with the timer; then the
#   reviews, the exercise once more from an empty cell, and `flashlab quiz drill`.
# - **You are running a workshop of 45 minutes**: section 1 of this page together, guesses by show of hands
#   (5 min); C's ⚡ sections (28 min); the exercise in pairs (12 min).
# - **You are running a workshop of 90 minutes**: the same opening (5 min); C's first sitting, the exercise
#   part of it (50 min); its sections 7 and 12, the tile and the kernel (15 min); questions and a pause (20
#   min).
#
# Every section that begins with `##` runs by itself after the set-up cell at the top of its notebook, so a
# late-comer, or a group that skips ahead, can start anywhere. Each heading says how many minutes it takes.

# %% [markdown]
# ## 4. What this machine can do (2 min)
#
# A GPU, Triton's interpreter in its place, or neither: the report says which parts of the course run here,
# and what to do about what is missing.

# %%
from flashlab import doctor

doctor.report()

# %% [markdown]
# ## 5. What you have done so far (1 min)
#
# Guesses, reviews and checks are kept in one file on this computer and sent nowhere. Run this cell again
# whenever you come back.

# %%
from flashlab import progress

progress.report()

# %% [markdown] tags=["fast"]
# ## 6. Next (1 min)
#
# Open [lesson C](03_C.ipynb) and do one row of attention by hand. It starts with six tokens and powers of
# two, and it ends with you reading a FlashAttention kernel and running it on a real sentence.
