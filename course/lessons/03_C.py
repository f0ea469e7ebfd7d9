# title: C. Forward pass and online softmax
# minutes: 90

# %% [markdown] tags=["slide"]
# # C. A softmax that never sees the whole row
#
# Softmax divides by a sum over the whole row. FlashAttention never has the whole row: a few keys are on chip, the rest are
# not there yet. It still gives the exact answer, and this lesson shows how, first with numbers that you can do in your
# head, then on a real sentence, and at the end in the Triton kernel.
#
# After it you can
#
# 1. update the three things a query row carries (max, sum, accumulator) by hand, and say what each one is,
# 2. write the loop from memory, past a check that knows the usual ways to get it wrong,
# 3. tell from a wrong number which line is missing,
# 4. say what becomes of causal masks, ragged ends, padding, dropout and the scale,
# 5. read the kernel line by line.
#
# You need: the matrix product, softmax, and what Q, K and V are. You do not need a GPU.
#
# **Two sittings**, 47 + 43 minutes; the break is after the exercise. In a hurry? The sections with ⚡ take 28 minutes.
# Wherever the page asks you for a guess, give one before you run the next cell. A wrong guess that you made is worth more
# than a right answer that you read.

# %% tags=["setup"]
import numpy as np

import flashlab as fl
from flashlab import online_softmax, reference, tiled

np.set_printoptions(precision=4, suppress=True)
q, k, v = fl.data.tiny()  # six tokens, d = 2
tau = np.log(2)  # softmax scale: exp(tau * x) == 2 ** x
x = q[5] @ k.T  # the raw scores of query 5, our row for work by hand
blocks = [slice(0, 2), slice(2, 4), slice(4, 6)]
Q, K, V, tokens = fl.data.minilm()  # a real sentence: 72 heads, 37 tokens, d = 32
S = Q.astype(float) @ K.astype(float).swapaxes(-1, -2) / np.sqrt(32)

# %% [markdown] tags=["slide"]
# ## Before you start (3 min)
#
# Three questions, asked again at the end with other numbers. Nothing is marked now; leave a box empty when you do not know.

# %%
fl.pretest("C")

# %% [markdown] tags=["fast", "slide"]
# ## 1. ⚡ One row by hand (4 min)
#
# Six keys, six values, one query. Query 5 is (1, 0), so its score with a key is just the key's first number. The softmax
# scale is ln 2, and exp(ln 2 · x) is 2ˣ: every weight is a power of two.
#
# | key | score x | weight 2ˣ | value |
# |---|---|---|---|
# | 0 | 1 | 2 | (9, 1) |
# | 1 | 0 | 1 | (6, 1) |
# | 2 | 3 | 8 | (1, 1) |
# | 3 | 2 | 4 | (4, 1) |
# | 4 | 2 | 4 | (5, 1) |
# | 5 | 0 | 1 | (12, 1) |
#
# The second number of every value is 1. So the second number of the output adds up the probabilities and must be 1. We
# call it the **mass**. Watch it: it is useful, and it will lie to you.

# %%
fl.predict("C-p01", "The first number of query 5's output? Pencil and paper are allowed.")

# %%
w = 2.0**x  # the same as exp(tau * x)
print(w, w.sum(), w @ v / w.sum())
fl.reveal("C-p01", float((w @ v / w.sum())[0]))
# > [2. 1. 8. 4. 4. 1.] 20.0 [4. 1.]
# > 4.0

# %% [markdown]
# (2·9 + 1·6 + 8·1 + 4·4 + 4·5 + 1·12) / 20 = 80 / 20 = 4, with mass 20 / 20 = 1.

# %% [markdown] tags=["slide"]
# ## 2. Two keys at a time (7 min)
#
# Now on-chip memory holds two keys and two values. Query 5's scores arrive as [1 0], [3 2], [2 0]. The heaviest key sits
# in the middle block, and while block 1 is here nobody knows that.
#
# > **C02 · Why does one query block have to sweep over all K/V blocks?** Because each of its rows attends to every key it
# > may see: the row's max, its denominator and its weighted sum run over the whole row, and only one K/V block fits on
# > chip at a time. Numerical stability is not the reason, and it saves no FLOPs.

# %%
fl.predict("C-p02", "Softmax each block on its own and add the three outputs. What mass comes out?")


# %%
def softmax_attention(x, v):
    w = 2.0**x
    return w @ v / w.sum()


own = np.array([softmax_attention(x[b], v[b]) for b in blocks])
print(own[:, 0], own.sum(0), own.mean(0))
fl.reveal("C-p02", float(own.sum(0)[1]))
# > [8. 2. 6.4] [16.4 3. ] [5.4667 1. ]
# > 3.0

# %% [markdown]
# Added, the outputs have mass 3. Averaged, they have mass 1, and 5.47 is wrong all the same: the answer is 4. That is the
# first time the mass lies.

# %%
fl.predict("C-p03", "Which share of the answer does block 2 deserve?")

# %%
total = np.array([(2.0 ** x[b]).sum() for b in blocks])
print(total, total / total.sum(), total / total.sum() @ own)
fl.reveal("C-p03", float(total[1] / total.sum()))
# > [ 3. 12. 5.] [0.15 0.6 0.25] [4. 1.]
# > 0.6

# %% [markdown]
# 0.15 · 8 + 0.6 · 2 + 0.25 · 6.4 = 4. A block's own softmax is not forbidden. What was missing is the block's **total**:
# with it, any number of blocks, met by any number of processors, merge exactly. (Splitting one decode query over many
# processors is this very sum.)
#
# > **C03 · Why is it wrong to softmax each score block on its own?** Each block then has its own denominator, and a row's
# > weights sum to the number of blocks. It becomes right when every block also reports its total, as (max, sum) or as
# > log-sum-exp, and the outputs are weighted by those totals.

# %% tags=["stop"]
fl.review("C-1")

# %% [markdown] tags=["slide"]
# ## 3. Totals that fit into a number (5 min)
#
# Here the totals were 3, 12 and 5. In a real model they are sums of exp(score), and a number format ends somewhere:
# fp16 at 65,504.

# %%
fl.predict(
    "C-p04",
    "A real sentence, 72 heads, fp16, exp(score) without subtracting the max. In how many heads does a weight overflow?",
)

# %%
with np.errstate(over="ignore"):
    broken = np.isinf(np.exp(S.astype(np.float16))).any(-1)  # [heads, rows]
print(f"largest score {S.max():.1f}, broken rows {broken.sum()}, in head {np.unique(np.where(broken)[0])}")
fl.reveal("C-p04", int(broken.any(-1).sum()))
# > largest score 39.7, broken rows 37, in head [2]
# > 1

# %% [markdown]
# One head of 72, and in it every row. exp passes 65,504 at a score of 11.09, and this head (in layer 0; it looks at the
# previous token) has scores up to 39.7. Seventy-one heads are fine, which is why such a bug ships.
#
# The cure: divide every weight by the largest one, 2^(x − max). It cancels in the ratio, and no weight exceeds 1. But the
# largest one is known only at the end of the row. Unless we may change our mind.

# %% [markdown] tags=["fast", "slide"]
# ## 4. ⚡ Three numbers that survive (10 min)
#
# Each query row carries three things from block to block:
#
# | name | in the papers | what it is, over the keys seen so far |
# |---|---|---|
# | row max | m | the largest score |
# | row sum | l | the sum of 2^(x − m) |
# | accumulator, acc | Õ | the sum of 2^(x − m) · value |
#
# Think of m as a **currency**: l and acc are amounts in units of 2^m. After block 1 (scores 1 and 0): m = 1, the weights
# are 1 and ½, l = 1.5 and acc = 1·(9, 1) + ½·(6, 1) = (12, 1.5).
#
# Block 2 brings a score of 3. The currency changes to 2³, so whatever is in the book is converted, once, by the rate
# α = 2^(m_old − m_new). Then the new block is entered in the new currency.
#
# > **C04 · Which statistics must a running, safe softmax carry?** Per query row the max so far and the sum of
# > exp(score − max) so far; attention adds the accumulator, d numbers. At the end they melt into one, the log-sum-exp.

# %%
fl.predict("C-p05", "m goes from 1 to 3. What is the rate α?")

# %%
fl.predict("C-p06", "l was 1.5; block 2 has the scores 3 and 2. What is the new l?")

# %%
fl.predict("C-p07", "acc's first number was 12; block 2 has the values 1 and 4. What is it now?")


# %%
def absorb(m, l, acc, x, v):
    m_new = max(m, x.max())
    alpha = 2.0 ** (m - m_new)  # convert what is already in the book
    p = 2.0 ** (x - m_new)  # the new block, in the new currency
    return m_new, alpha * l + p.sum(), alpha * acc + p @ v


# %%
state = (-np.inf, 0.0, np.zeros(2))
for b in blocks:
    state = absorb(*state, x[b], v[b])
    print(f"m = {state[0]:.0f}   l = {state[1]}   acc = {state[2]}")
# > m = 1 l = 1.5 acc = [12. 1.5]
# > m = 3 l = 1.875 acc = [6. 1.875]
# > m = 3 l = 2.5 acc = [10. 2.5]

# %%
fl.reveal("C-p05", 2.0 ** (1 - 3))
# > 0.25

# %%
fl.reveal("C-p06", float(absorb(1, 1.5, np.array([12, 1.5]), x[2:4], v[2:4])[1]))
# > 1.875

# %%
fl.reveal("C-p07", float(absorb(1, 1.5, np.array([12, 1.5]), x[2:4], v[2:4])[2][0]))
# > 6.0

# %% [markdown]
# Look at the last column: acc's second number *is* l, line by line. The row sum is the accumulator of a value that is
# always 1. Whatever is done to acc must be done to l.
#
# The first block needs no case of its own: m = −∞ makes α = 2^(−∞) = 0, and an empty book converts to an empty book.
#
# > **C05 · Give the update rules.** m′ = max(m, max s); α = exp(m − m′); p = exp(s − m′); l ← α·l + Σp; and, for attention,
# > acc ← α·acc + p·V. Only the old amounts are converted; the new block already is in the new unit.
#
# > **C06 · Why are the old denominator and accumulator rescaled?** Both are sums of exp(score − m) with the *old* m. To add
# > terms that use the new m, they must first be expressed in it: times exp(m − m′), at most 1. Both need it, since their
# > ratio is the answer.

# %%
fl.predict(
    "C-p08",
    "After block 2 acc / l is 6 / 1.875 = 3.2. To which question is 3.2 the exact answer?",
    choices=["to none: it is unfinished", "attention over keys 0 to 3", "attention over block 2"],
)

# %%
prefix = [reference.attention(q[5:], k[:n], v[:n], scale=tau)[0][0, 0] for n in (2, 4, 6)]
print(np.array(prefix))
fl.reveal("C-p08", "attention over keys 0 to 3")
# > [8. 3.2 4. ]
# > 'attention over keys 0 to 3'

# %% [markdown]
# > **C07 · What does the running accumulator stand for?** The numerator of attention over the keys seen so far, in units of
# > exp(m): not yet divided. acc / l is, at every moment, exact attention over those keys. FlashAttention-1 stores that
# > quotient; FlashAttention-2 keeps acc and divides once at the end.
#
# **Play with it.** Stop on the frame where both bars shrink. By how much? Then play it backwards: which block changes α?

# %%
fl.SoftmaxStepper(x, v, block=2, unit="log2")

# %% [markdown]
# Does the order of the blocks matter? Guess silently, then run.

# %%
state = (-np.inf, 0.0, np.zeros(2))
for b in blocks[::-1]:
    state = absorb(*state, x[b], v[b])
print(state[0], state[1], state[2] / state[1])
# > 3.0 2.5 [4. 1.]

# %% tags=["stop"]
fl.review("C-2")

# %% [markdown] tags=["slide"]
# ## 5. Break it (6 min)
#
# Below are twelve programs with one mistake each. Two of these mistakes have been in print: the rate the wrong way round
# on acc stood in a version of a paper, dividing inside the loop is on a popular interview card.

# %%
fl.predict("C-p09", "How many of the twelve wrong programs still give query 5 a mass of exactly 1?")

# %%
programs = list(fl.checks.mutants.load("online_softmax").items())[:13]
results = {name: f(tau * x[None], v, 2)[0][0] for name, f in programs}
for name, (out, mass) in results.items():
    print(f"{name:28} {out:7.3f} {mass:5.2f}")
fl.reveal("C-p09", sum(bool(np.isclose(mass, 1)) for name, (out, mass) in results.items()) - 1)
# > nothing wrong 4.000 1.00
# > acc is not converted 7.600 1.45
# > row_sum is not converted 2.759 0.69
# > neither is converted 5.241 1.00
# > both divided by alpha 6.769 1.00
# > only acc divided by alpha 22.000 3.25
# > alpha on the new block 6.700 1.00
# > divide inside the loop 11.200 2.05
# > softmax per block, averaged 5.467 1.00
# > no max subtraction 4.000 1.00
# > max starts at 0 4.000 1.00
# > last partial block dropped 4.000 1.00
# > no division at the end 10.000 2.50
# > 7

# %% [markdown]
# Seven wrong programs pass the test "the rows sum to one". Three of them even print 4.000: this row cannot see their
# mistake (sections 9 and 11 can). The other nine have a number each. If your own code prints 7.6 one day, you know which
# line is missing; the check of the exercise uses this table.

# %%
fl.predict(
    "C-p10",
    "The real sentence in blocks of 16, acc never converted. Which part of the 2,664 rows is wrong?",
    unit="%",
)

# %%
acc_not_converted = dict(programs)["acc is not converted"]
exact, _ = reference.attention(*(a.astype(float) for a in (Q, K, V)))
wrong = np.array([acc_not_converted(S[h], V[h].astype(float), 16)[0] for h in range(72)])
bad = abs(wrong - exact).max(-1) > 1e-2  # [heads, rows]
print(f"{bad.sum()} of {bad.size} rows")
fl.reveal("C-p10", round(100 * bad.mean()))
# > 456 of 2664 rows
# > 17

# %% [markdown]
# A line is missing and five rows of six are right. How often does the max rise at all? Forwards, backwards, and for random
# scores:


# %%
def rises(S, order=1):
    tops = [S[..., j : j + 16].max(-1) for j in range(0, 37, 16)][::order]
    peaks = np.maximum.accumulate(tops)
    return round(float(sum((t > p).mean() for t, p in zip(tops[1:], peaks))), 2)


noise = np.random.default_rng(0).normal(size=(20000, 37))
rises(S), rises(S, -1), rises(noise)
# > (0.19, 1.32, 0.63)

# %% [markdown]
# This model parks much of its attention on the first token, [CLS]; so the max of most rows sits in the first block and
# never moves, and a row whose max never moves needs no conversion. Walk the blocks from the end, as flash-attn's CUDA
# kernel does, and it rises 1.3 times a row. **Real data can be a weak test.**
#
# **Play with it.** The same stepper on a real row, with knock-out switches. Find a row where knocking out the conversion
# changes nothing, and say why *before* you look at m. (Change `head` and `row` and run the cell again.)

# %%
head, row = 2, 20
fl.SoftmaxStepper(S[head, row], V[head].astype(float), block=16, unit="e", labels=tokens)

# %% [markdown] tags=["slide"]
# ## 6. Exercise: write it (12 min)
#
# **`online_softmax`** · difficulty ●●○ · importance ●●● · serves C04 C05 C06 C09 C10
#
# `online_attention(scores, values, block)` gets the scores [rows, keys] of one tile of queries (scaled already, −∞ where
# masked) and the values [keys, d]. It looks at `block` keys at a time, never at a whole row, in base e, and returns `out`
# [rows, d] and `lse` [rows]. A row that may look at nothing gives 0 and −∞.
#
# Prefer a page of its own? The same exercise is in [exercises/online_softmax](../exercises/online_softmax.ipynb).


# %% tags=["exercise"]
def online_attention(scores, values, block):
    ### BEGIN SOLUTION
    state = online_softmax.start(len(scores), values.shape[1], scores.dtype)
    for j in range(0, len(values), block):
        state = online_softmax.absorb(state, scores[:, j : j + block], values[j : j + block])
    return online_softmax.finish(state)
    ### END SOLUTION


# %% tags=["check"]
fl.check("online_softmax")(online_attention)

# %% [markdown]
# Stuck? `fl.hint("online_softmax")` gives a small push, then a larger one, then nearly all. Nothing below needs your
# function, so you may also go on and come back.

# %% tags=["stop"]
fl.review("C-3")

# %% [markdown] tags=["slide"]
# *Half-way: a good place to stop. 43 minutes left.*

# %% [markdown] tags=["fast", "slide"]
# ## 7. ⚡ From a row to a tile (8 min)
#
# Nothing in the update mixes rows. So take a whole block of queries at once: m and l become columns, one entry for each
# row, and acc a matrix [rows, d].

# %%
fl.predict(
    "C-p11",
    "Query block 1 holds rows 2 and 3. Their scores reach 3 and −1. What is m for the tile, in base 2?",
)

# %%
X = q[2:4] @ k.T
print(X)
fl.reveal("C-p11", tuple(float(m) for m in X.max(-1)))
# > [[ 1. 1. 2. 2. 3. 2.]
# > [-1. -1. -2. -2. -3. -2.]]
# > (3.0, -1.0)

# %% [markdown]
# On some interview cards m and l are single numbers for the tile. Try that:

# %%
W = 2.0 ** (X - X.max())  # one max for the tile
print(W.sum(1) / W.sum())  # one sum for the tile: the masses of the two rows
print((W @ v / W.sum())[:, 0], "but right is", reference.attention(q[2:4], k, v, scale=tau)[0][:, 0])
# > [0.9275 0.0725]
# > [5.3333 0.4783] but right is [5.75 6.6 ]

# %% [markdown]
# One *max* for the tile is legal and only dangerous (section 11). One *sum* is wrong: the two rows share a mass of 1
# instead of having 1 each. **m and l are vectors with one entry per query row.** Now the whole forward pass, in Python.
# Read it aloud once, and point at load, score, update, finish.

# %%
fl.show_source(tiled.fa2_forward)

# %%
o, lse = tiled.fa2_forward(q, k, v, block_q=2, block_k=2, scale=tau)
print(o[:, 0])
print(np.exp(lse))
# > [6.1667 7.9524 5.75 6.6 2.6667 4. ]
# > [ 6. 10.5 24. 1.875 24.75 20. ]

# %% [markdown]
# > **C01 · Outline the whole forward computation.** One program per (batch, head, query block). It loads its Q block and
# > starts with m = −∞, l = 0, acc = 0. For each K/V block: load it, S = scale · QKᵀ, mask, new max, convert l and acc, add the
# > block. At the end o = acc / l and L = m + ln l, each written once. No N × N matrix ever reaches HBM.
#
# > **C09 · How does the final output come out of the accumulated quantities?** o = acc / l, once, after the last block, then
# > rounded to 16 bits and written; L = m + ln l goes with it.
#
# FlashAttention-1 has the same loops the other way round: each K/V block visits all query blocks, so that every row's o, m
# and l must be put away in HBM and fetched again at the next visit.

# %%
fl.predict(
    "C-p12",
    "Three K/V blocks. How often does FA1 write row 5's output to HBM, besides the zeros it starts from?",
)

# %%
trace = fl.trace.Trace(dtype="float32")
tiled.fa1_forward(q, k, v, block_q=2, block_k=2, scale=tau, trace=trace)
writes = [e for e in trace if e.op == "store" and e.tensor == "o_fp32" and e.tile == (2,)]
fl.reveal("C-p12", len(writes) - 1)
# > 3

# %% [markdown]
# It wrote 8.0, then 3.2, then 4.0: the three prefixes of section 4. FA2 writes 4.0, once. That swap of the two loops is
# what FlashAttention-2 is first of all. Numbers moved, all counted:

# %%
fa1 = trace.bytes() // 4
trace = fl.trace.Trace(dtype="float32")
tiled.fa2_forward(q, k, v, block_q=2, block_k=2, scale=tau, trace=trace)
{"standard": 4 * 6 * 6 + 4 * 6 * 2, "FA1": fa1, "FA2": trace.bytes() // 4}
# > {'standard': 192, 'FA1': 270, 'FA2': 102}

# %% [markdown]
# "Standard" writes and reads S and P, 4N² + 4Nd numbers. At N = 6 it moves *less* than FA1 (228 as published, and 42 to
# round the output and form L). Tiny sizes mislead: standard grows with N², and at real sizes it loses to both.

# %% [markdown] tags=["slide"]
# ## 8. What remains when the loop ends (4 min)
#
# m and l melt into one number per row, the **log-sum-exp** L = m + ln l. With it any tile of P can be had again, later,
# from Q and K alone and without a second pass over the row:

# %%
_, lse = tiled.fa2_forward(q, k, v, block_q=2, block_k=2, scale=tau)
np.exp(tau * q[4:6] @ k[2:4].T - lse[4:6, None])  # rows 4 and 5, keys 2 and 3
# > array([[0.6465, 0.1616], [0.4 , 0.2 ]])

# %%
fl.predict("C-p13", "B = 8, H = 32, N = 4096. P in fp16 takes how many times the memory of L in fp32?")

# %%
B, H, N = 8, 32, 4096
P_bytes, L_bytes = 2 * B * H * N * N, 4 * B * H * N
print(P_bytes / 2**30, "GiB against", L_bytes / 2**20, "MiB")
fl.reveal("C-p13", P_bytes // L_bytes)
# > 8.0 GiB against 4.0 MiB
# > 2048

# %% [markdown]
# > **C08 · Why is it unnecessary to store the probability matrix?** Forward, each tile of P is used up at once by its product
# > with V. Backward, P = exp(S − L) is rebuilt tile by tile from Q, K and one number per row. The price is one more QKᵀ and
# > one more exp; the gain is a factor of N / 2 in memory.

# %% tags=["stop"]
fl.review("C-4")

# %% [markdown] tags=["slide"]
# ## 9. Not every key counts (9 min)
#
# **Causal.** Query i may look at keys 0 to i. Cut into tiles there are three kinds: above the diagonal, on it, below it.

# %%
fl.predict("C-p14", "Causal, 3 × 3 tiles. On how many of the nine tiles is any work done?")

# %%
trace = []
o, _ = tiled.fa2_forward(q, k, v, block_q=2, block_k=2, scale=tau, causal=True, trace=trace)
print(o[:, 0])
fl.reveal("C-p14", sum(e.op == "scores" for e in trace))
# > [9. 7. 4.25 5.8333 2.5714 4. ]
# > 6

# %% [markdown]
# > **C12 · How is a causal mask handled block by block?** Tiles above the diagonal are skipped, neither loaded nor computed.
# > Tiles on it get −∞ *before* the max. Tiles below it run without any mask code. With T × T tiles (T + 1) / 2T of the work
# > remains: 2/3 here, 0.56 at T = 8. When Nq ≠ Nk, ask which corner the mask is aligned to.

# %%
fl.predict(
    "C-p15", "Decoding: query 5 alone, six keys in the cache, causal=True as PyTorch's SDPA means it. Output?"
)

# %%
lone = {
    c: reference.attention(q[5:], k, v, scale=tau, causal=c)[0][0, 0] for c in ("top-left", "bottom-right")
}
print({c: round(float(out), 4) for c, out in lone.items()})
fl.reveal("C-p15", float(lone["top-left"]))
# > {'top-left': 9.0, 'bottom-right': 4.0}
# > 9.0

# %% [markdown]
# Top-left, PyTorch's `is_causal`, lets the first (here: only) query see key 0 and no more. The model would read the
# beginning of the text and nothing else: finite, plausible, wrong. flash-attn since 2.1 aligns bottom-right.
#
# **Ragged ends.** With blocks of 4 the last block has two real keys and two empty slots, filled with zeros.

# %%
fl.predict("C-p16", "The two empty slots are not masked. What mass do the six real keys keep in row 5?")

# %%
ghost_k, ghost_v = np.vstack([k, np.zeros((2, 2))]), np.vstack([v, np.zeros((2, 2))])
out, mass = reference.attention(q[5:], ghost_k, ghost_v, scale=tau)[0][0]
print(f"{out:.4f}")
fl.reveal("C-p16", round(float(mass), 4))
# > 3.6364
# > 0.9091

# %% [markdown]
# 80/22 and 20/22: a score of zero is not a weight of zero; each empty slot weighs 2⁰ = 1. The opposite mistake, dropping
# the ragged block, gives 3.2 with mass 1. (The mass lies again.)
#
# **Rows that may look at nothing.** Six queries, four keys, bottom-right: queries 0 and 1 see no key.

# %%
o, lse = tiled.fa2_forward(q, k[:4], v[:4], block_q=2, block_k=2, scale=tau, causal="bottom-right")
print(o[:, 0])
print(lse[:2])
# > [0. 0. 9. 7.5 2. 3.2]
# > [-inf -inf]

# %% [markdown]
# Left alone, −∞ − (−∞) would be NaN and poison the row for good. The guard: where the max is still −∞, subtract 0. flashlab
# promises o = 0 and lse = −∞ for such rows.
#
# **Padding.** Two sequences of 37 and 20 tokens in one batch, padded to 37.

# %%
fl.predict("C-p17", "Which share of the 2 × 37 × 37 score entries is computed for nothing?", unit="%")

# %%
lengths = np.array([37, 20])
wasted = 1 - (lengths**2).sum() / (len(lengths) * lengths.max() ** 2)
print(np.cumsum([0, *lengths]))
fl.reveal("C-p17", round(100 * wasted))
# > [ 0 37 57]
# > 35

# %% [markdown]
# > **C13 · How are padding and variable lengths dealt with?** Best: not at all. Pack the 57 real tokens into one [57, H, D]
# > tensor and tell the kernel where each sequence starts, cu_seqlens = [0, 37, 57] (cumulative, int32, B + 1 entries). Only
# > each ragged last tile is masked, and no sequence sees another. A padding mask gives the same numbers for more work.

# %% [markdown] tags=["slide"]
# ## 10. Dropout and the scale (5 min)
#
# Dropout thins P *after* softmax. Row 5, every second key dropped (p = ½); which of the two is right?

# %%
P = 2.0**x / 20
keep = np.array([1, 0, 1, 1, 0, 1])
print((P * keep / 0.5) @ v)  # thin the weights, multiply by 1 / (1 - p)
print((P * keep) @ v / (P * keep).sum())  # thin the weights, divide by the sum of those kept
# > [5.4 1.5]
# > [3.6 1. ]

# %% [markdown]
# The first. A mass of 1.5 is as it should be: it is 1 *on average*. The second has a perfect mass and is another function.
#
# > **C14 · What needs care with dropout?** l is the sum of **all** weights; only the copy of p that meets V is thinned and
# > scaled by 1 / (1 − p). The mask is never stored: a counter-based generator (Philox) makes it again in the backward pass
# > from a seed and the position. And pass p = 0 when evaluating: functional calls do not know `model.eval()`.

# %%
fl.predict(
    "C-p18",
    "Your scale is ln 2. Which slip with it moves row 5's output (4.0) least, and so hides best?",
    choices=["forgotten", "applied twice", "the default 1/√d instead"],
)

# %%
scales = {"yours": tau, "forgotten": 1.0, "applied twice": tau**2, "the default 1/√d instead": None}
outs = {name: float(reference.attention(q[5:], k, v, scale=s)[0][0, 0]) for name, s in scales.items()}
print({name: round(out, 4) for name, out in outs.items()})
fl.reveal("C-p18", min(list(outs)[1:], key=lambda name: abs(outs[name] - 4)))
# > {'yours': 4.0, 'forgotten': 3.2604, 'applied twice': 4.6135, 'the default 1/√d instead': 3.9625}
# > 'the default 1/√d instead'

# %% [markdown]
# > **C15 · Where does 1/√d take effect?** On the scores, before mask, max and softmax. Scaling Q, K or S is the same in exact
# > arithmetic; scaling P or O is not, nor is doing it twice. Kernels fold it, with log₂e, into the argument of exp2. In the
# > backward pass dQ and dK get it once more, dV does not. Padding d to a power of two must not change it.

# %% tags=["stop"]
fl.review("C-5")

# %% [markdown] tags=["slide"]
# ## 11. How exact is exact? (6 min)
#
# Standard and tiled attention on the real sentence in float32: which share of the output numbers has the very same bits?
# And between two tile sizes? And between two runs of the same code? Guess all three.

# %%
f32 = [a.astype(np.float32) for a in (Q, K, V)]
exact, _ = reference.attention(*(a.astype(float) for a in f32))
standard, _ = reference.attention(*f32)
b16, b8, again = (tiled.fa2_forward(*f32, block_q=16, block_k=b)[0] for b in (16, 8, 16))
pairs = {"standard, tiles of 16": (standard, b16), "tiles of 8, of 16": (b8, b16), "run twice": (again, b16)}
for name, (a, b) in pairs.items():
    print(
        f"{name:22} {(a == b).mean():4.0%} same bits, errors {abs(a - exact).max():.0e} {abs(b - exact).max():.0e}"
    )
# > standard, tiles of 16 ... same bits, errors ... ...
# > tiles of 8, of 16 ... same bits, errors ... ...
# > run twice 100% same bits, errors ... ...

# %% [markdown]
# (The first two shares depend on your machine's matrix library; 10 to 40 % is usual.)
#
# > **C11 · Is the result bitwise identical to standard attention?** No: the sums are taken in another order, and rounding
# > depends on order. It is exact in the mathematical sense: no approximation, and an error of the same size as that of the
# > standard computation in the same format. The same order twice gives the same bits.
#
# Now the inputs that tell the survivors of section 5 apart. Add ±200 to every score. Softmax does not care. float32 does:

# %%
y, v32 = (tau * x[None]).astype(np.float32), v.astype(np.float32)
bad = fl.checks.mutants.load("online_softmax")
with np.errstate(all="ignore"):
    for name in ("no max subtraction", "max starts at 0"):
        outs = [bad[name](y + np.float32(tau * s), v32, 2)[0][0, 0] for s in (200, -200)]
        print(f"{name:20}", [round(float(out), 3) for out in outs])
# > no max subtraction [nan, nan]
# > max starts at 0 [4.0, nan]

# %%
print("rows of the real sentence whose scores are all negative:", (S.max(-1) < 0).sum(), "of", S.max(-1).size)
# > rows of the real sentence whose scores are all negative: 0 of 2664

# %% [markdown]
# Without a max both ends break. A max that *starts at 0* is right for positive scores, right in float64, right on every
# row of the real sentence, and NaN here: exp of −139 is 0 in float32, and 0 / 0 is NaN. A kernel was released with this bug.
# One max for several rows is dangerous for the same reason: a row far below it underflows to 0 / 0.
#
# > **C10 · How does online softmax stay stable?** Every exponent is at most 0 (s − m′ and m − m′), so every factor lies in
# > (0, 1]: nothing overflows. The largest term contributes exactly 1, so 1 ≤ l ≤ number of keys: nothing divides by 0. m
# > starts at −∞, not at 0, and the statistics are fp32 even when Q, K and V are 16 bits.

# %% [markdown] tags=["fast", "slide"]
# ## 12. ⚡ The kernel (6 min)
#
# Here is a dictionary from NumPy to Triton.
#
# | tiled.py | kernels/fa2.py | in words |
# |---|---|---|
# | `for i in range(blocks)` | `tl.program_id(0)` | no loop: each query block is a program, all run at once |
# | `hbm.load("q", i)` | `tl.load(pointers, mask=…, other=0.0)` | a slice becomes a grid of addresses, masked at the ragged end |
# | `for j in …` | `for start in range(…, BLOCK_K)` | the sweep over K/V stays a loop |
# | `scale * (q_i @ k_j.T)` | `tl.dot(q, k) * scale_log2` | the scale times log₂e, so that exp becomes exp2 |
# | `np.where(see, s, -inf)` | `tl.where(see, s, float("-inf"))` | before the max, in the tiles that need it |
# | `np.maximum(m, s.max(-1))` | `tl.maximum(row_max, tl.max(s, 1))` | one entry per row |
# | `alpha * acc + p @ v` | `acc * alpha[:, None] + tl.dot(p, v)` | p goes down to 16 bits for the tensor cores, acc stays fp32 |
# | `hbm.store("o", i, …)` | `tl.store(pointers, o, mask=…)` | once |

# %%
from flashlab.kernels import fa2

fl.show_source(fa2.absorb)

# %% [markdown]
# That was the update of section 4, for a tile. And around it, the loop over key blocks:

# %%
fl.show_source(fa2.forward_kernel)

# %% [markdown]
# The same six numbers, from that kernel. On a CPU it runs in Triton's interpreter, on an NVIDIA GPU it is compiled:

# %%
import torch

tiny = [torch.tensor(a, dtype=torch.float32)[None, None] for a in (q, k, v)]
out = fl.attention(*tiny, scale=float(tau), backend="fa2")
out[0, 0, :, 0]
# > tensor([6.1667, 7.9524, 5.7500, 6.6000, 2.6667, 4.0000])

# %% [markdown]
# And on four heads of the real sentence, judged as kernels should be: its error may be at most twice the error that plain
# NumPy makes in the same format. Is it?

# %%
heads = [a[:4].astype(np.float32) for a in (Q, K, V)]
exact, _ = reference.attention(*(a.astype(float) for a in heads))
plain, _ = reference.attention(*heads)
got = fl.attention(*(torch.tensor(a[None]) for a in heads), backend="fa2")[0].numpy()
bool(abs(got - exact).max() <= 2 * abs(plain - exact).max() + 1e-7)
# > True

# %% [markdown]
# You have read a FlashAttention-2 forward kernel. Note the 37 tokens: a multiple of nothing, so the last tile is ragged.
#
# **Play with it.** Two rows of one query block, the view that a program has: one α per row.

# %%
fl.SoftmaxStepper(q[2:4] @ k.T, v, block=2, unit="log2")

# %% [markdown] tags=["slide"]
# ## 13. Recap, aloud, and again (5 min)
#
# | | |
# |---|---|
# | keep, per query row | m, l, acc |
# | update | m′ = max(m, max s); α = exp(m − m′); p = exp(s − m′); l ← α·l + Σp; acc ← α·acc + p·V |
# | end | o = acc / l, L = m + ln l |
# | why it works | l and acc are amounts in units of exp(m) |
# | why it is safe | no exponent is above 0, and l is at least 1 |
# | why P is not kept | P = exp(S − L) |
# | what to test | a row whose max moves, a ragged end, very negative scores, an empty row, more than one row |
# | what "the rows sum to one" proves | little |
#
# Now say it: one minute, aloud, then tick what you said. Try it without the words "block" and "tile".

# %%
fl.say("C01")

# %% [markdown]
# And the three questions of the beginning, with other numbers:

# %%
fl.posttest("C")

# %% tags=["stop"]
fl.review("C-6")

# %% [markdown]
# **Next.** Ten minutes: come back tomorrow and run only the review cells. Thirty minutes: the exercise
# [online_softmax](../exercises/online_softmax.ipynb) on a page of its own, without looking up. The trick travels, too: the
# loss over a vocabulary of 128k words in chunks is the same merge of log-sum-exps, and a running mean and variance is its
# cousin.
