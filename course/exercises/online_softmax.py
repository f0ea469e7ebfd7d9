# title: Exercise · A softmax that never sees the whole row
# minutes: 12

# %% [markdown]
# # Exercise: a softmax that never sees the whole row
#
# **`online_softmax`** · difficulty ●●○ · importance ●●● · 12 min · no GPU · serves C04 C05 C06 C09 C10
#
# This loop is the heart of FlashAttention. Attention needs the softmax of a whole row of scores, but fast
# memory holds only a few keys and values at a time. You write the loop that meets the keys block by block
# and still gives exactly the same answer. It takes about ten lines.
#
# Needs: NumPy, and sections 1 to 5 of [lesson C](../notebooks/03_C.ipynb).

# %% tags=["setup"]
import numpy as np

import flashlab as fl

# %% [markdown]
# ## Write it (12 min)
#
# **The formula.** For every row of scores s and values v, with one sum over all keys:
#
#     out = Σ exp(s_key) · v_key / Σ exp(s_key)
#     lse = ln Σ exp(s_key)
#
# Written like this it needs the whole row, and exp overflows. So carry three things per row from block to
# block:
#
# | carried | shape | is |
# |---|---|---|
# | row max m | [rows] | the largest score so far |
# | row sum l | [rows] | the sum of exp(s − m) so far |
# | accumulator acc | [rows, d] | the sum of exp(s − m) · v so far |
#
# **The picture.** One row of six scores, two at a time (in base 2, so that you can check it in your head: a
# score of 3 weighs 2³; your function uses base e):
#
#     block           1       2       3
#     scores        1  0    3  2    2  0
#     values        9  6    1  4    5 12
#     m       −∞ →   1   →   3   →   3       block 2 brings a larger max:
#     l        0 →  1.5  → 1.875 →  2.5      what happens to the l and acc
#     acc      0 →  12   →   6   →  10       that are there already?
#
# At the end out = 10 / 2.5 = 4.
#
# **What your function gets and gives.** `online_attention(scores, values, block) -> (out, lse)`
#
# - `scores` [rows, keys]: scaled already; −∞ where a key is masked. `values` [keys, d]. Leave both unchanged.
# - Look at `block` keys at a time, never at a whole row. The last block may be shorter.
# - `out` [rows, d], `lse` [rows], in base e, as exact as NumPy is in the dtype of the inputs.
# - A row that may look at no key at all gives `out` = 0 and `lse` = −∞, and no NaN.


# %% tags=["exercise"]
def online_attention(scores, values, block):
    ### BEGIN SOLUTION
    row_max, row_sum, acc = np.full(len(scores), -np.inf), np.zeros(len(scores)), 0
    for j in range(0, len(values), block):
        x, v = scores[:, j : j + block], values[j : j + block]
        new_max = np.maximum(row_max, x.max(1))
        unit = np.where(np.isneginf(new_max), 0, new_max)  # −∞ minus −∞ would be NaN
        alpha, p = np.exp(row_max - unit), np.exp(x - unit[:, None])
        row_max, row_sum, acc = new_max, alpha * row_sum + p.sum(1), alpha[:, None] * acc + p @ v
    total = np.where(row_sum == 0, 1, row_sum)  # an empty row: 0 / 1 instead of 0 / 0
    return acc / total[:, None], row_max + np.log(total)
    ### END SOLUTION


# %% [markdown]
# **Check it.** Seven stages, from one row by hand to scores of ±1000. The check stops at the first stage
# that fails and often says which line is missing: every usual mistake gives the row in the picture a number
# of its own.

# %% tags=["check"]
fl.check("online_softmax")(online_attention)

# %% [markdown]
# **Stuck?** Three hints: a question, then the update with two blanks, then the update line by line. Take
# away the `#`; every call gives the next one.

# %%
# fl.hint("online_softmax")

# %% [markdown]
# **Afterwards.** These are the right answers for the six rows of the running example (the row above is the
# last). Take one line out of your function: which rows notice, and why not the others?

# %%
q, k, v = fl.data.tiny()
scores = np.log(2) * q @ k.T  # times ln 2, so that exp gives powers of two
weights = np.exp(scores)
weights @ v[:, 0] / weights.sum(1)
# > array([6.16666667, 7.95238095, 5.75 , 6.6 , 2.66666667, 4. ])

# %%
# online_attention(scores, v, 2)[0][:, 0]

# %% [markdown]
# - The [solution notebook](../solutions/online_softmax.ipynb) has one right answer, or
#   `fl.solution("online_softmax")`.
# - Nothing else waits for this exercise. On to section 7 of [lesson C](../notebooks/03_C.ipynb): from a row
#   to a tile.

# %% [markdown] tags=["answer"]
# **About this solution.** Row sum and accumulator are converted by the same factor alpha: both are amounts
# in units of exp(m). The first block needs no case of its own: the max is −∞, so alpha = exp(−∞) = 0 wipes
# the empty book. `unit` matters for a row that has seen only masked keys; `total` for one that never sees
# any. Other right answers: keep the quotient acc / row_sum as FlashAttention-1 does, or compute every block
# on its own and merge the results at the end.
