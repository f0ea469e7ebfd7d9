# title: The seven pictures
# minutes: 17

# %% [markdown] tags=["slide"]
# # The seven pictures
#
# Five of the pictures below open from a `Problem` in one line: the sizes of one attention call. Their numbers are counted
# from the same loops that compute the answer, and each title says what was found. Change N, the GPU or the block sizes and
# watch the title. Everything works with the keyboard, and "Show as table" gives the numbers as text.

# %% tags=["setup"]
import flashlab as fl
from flashlab import figures
from flashlab.widgets import BlockSchedule, DispatchDetective, MemoryMap, PipelineTimeline, Roofline
from flashlab.widgets import TileBudget, TilePlayer

problem = fl.Problem(B=4, Hq=16, Nq=4096, D=128, dtype="float16", block_q=128, block_k=64)

# %% [markdown] tags=["slide"]
# ## 1. What moves: TilePlayer (3 min)
#
# Press Play and look at S and P: standard attention writes both matrices and reads them back, FlashAttention never has
# more than one tile of them, on chip. Then compare the byte counters of K and V, the price that FA2 pays for it.

# %% tags=["widget"]
TilePlayer.of(fl.Problem(Nq=1024, D=64))

# %%
small = fl.Problem(Nq=1024, D=64)
for algorithm in ("standard", "fa1", "fa2"):
    print(algorithm, fl.memory.traffic(small, algorithm).bytes())
# > standard 8912896
# > fa1 11685888
# > fa2 4460544

# %% [markdown]
# All bytes that the programs ask for, of one head. FA1 moves more than standard attention here: its running output
# travels with every key block. That is what FA2 turned inside out.

# %% [markdown] tags=["slide"]
# ## 2. Who works when: BlockSchedule (2 min)
#
# Each row is a multiprocessor, each bar a program: look for the white end, where most of the chip waits for the last few
# blocks. Make it causal and change the order to longest-first, and the white end nearly disappears.

# %% tags=["widget"]
BlockSchedule.of(problem, gpu="H200")

# %% [markdown] tags=["slide"]
# ## 3. What limits: Roofline (3 min)
#
# A point on the slope waits for memory, a point on the flat part for arithmetic; look where the points of standard
# attention and FA2 stand, and how far below the roof the measurements lie. Decoding stands far to the left whatever the
# algorithm: one token, and the whole cache to read.

# %% tags=["widget"]
Roofline.of(problem, gpu="H200")

# %%
standard = fl.memory.traffic(problem, "standard", level="hbm", gpu="H200")
print(standard.intensity, fl.gpus.get("H200").ridge())
# > 62.06 206.1

# %% [markdown] tags=["slide"]
# ## 4. What stays: MemoryMap (2 min)
#
# Two lines, one twice as steep as the other: look where each crosses the memory of the GPU. Then choose inference and
# fewer K/V heads: what is left is the KV cache, which FlashAttention does not shrink and grouped heads do.

# %% tags=["widget"]
MemoryMap.of(problem, gpu="H200", layers=6)

# %%
kept = fl.memory.kept(problem, "standard", layers=6)["p"]
lse = fl.memory.kept(problem, "fa2", layers=6)["lse"]
print(kept, lse, kept // lse)
# > 12884901888 6291456 2048

# %% [markdown]
# P in fp16 against one fp32 number for each row: N · 2 / 4 = 2048 times less.

# %% [markdown] tags=["slide"]
# ## 5. What fits: TileBudget (1 min)
#
# Larger query blocks move fewer bytes, until shared memory or registers run out: look for the cell where that happens.
# Choose another GPU and see which of the two gives out first.

# %% tags=["widget"]
TileBudget.of(problem, gpu="A100-80")

# %% [markdown] tags=["slide"]
# ## 6. What runs: DispatchDetective (2 min)
#
# All of the above assumes that a FlashAttention kernel runs at all. PyTorch decides that anew for each call: guess which
# backend it takes, then see which ones said no, in PyTorch's own words. Try a dropout, a mask that learns, fewer K/V heads.

# %% tags=["widget"]
DispatchDetective.of(Hq=8, Nq=1024, D=64)

# %%
(
    fl.dispatch.explain(Nq=1, Nk=1024, D=64, dropout_p=0.1).choice,
    fl.dispatch.explain(Nq=1, Nk=1024, D=64).choice,
)
# > ('math', 'flash')

# %% [markdown]
# `fl.dispatch.trap("causal_one_query")` runs one of the usual surprises; `fl.dispatch.traps()` names them.

# %% [markdown] tags=["slide"]
# ## 7. Who waits for whom: PipelineTimeline (3 min)
#
# FlashAttention-3 computes what FA2 computes; what it changes is when. Each row is a unit of one multiprocessor of an H200,
# hatching is waiting. Guess first, then look at the tensor cores: step 2 leaves gaps during softmax, step 3 closes them at
# D = 128. The turns of step 4 find nothing left to close there; choose D = 64 and they do. "Between blocks" shows what step 5
# is for; at D = 64 it also has a third consumer. All of it is a simulator's model of the unmodified kernels: who waits for
# whom, not how fast a GPU is.

# %% tags=["widget"]
PipelineTimeline.of(step=4, above=2, D=128)

# %%
from flashlab import pipeline

for D in (128, 64):
    print(D, [f"{pipeline.busy(log, 'tensor'):.0%}" for log in pipeline.logs(D)])
# > 128 ['24%', '70%', '82%', '82%', '88%']
# > 64 ['18%', '48%', '57%', '64%', '87%']

# %% [markdown] tags=["slide"]
# ## 8. On paper (1 min)
#
# The same pictures as stills for slides and print: `figures.` has one function for each, and `savefig` saves it. Each
# still describes itself in words, for people who do not see it.

# %%
still = figures.roofline(problem, gpu="H200")
print(figures.alt_text(still).split(". ")[0])
still
# > Standard attention is memory-bound: 62 FLOP/byte, the H200's ridge is at 206
# > ...
