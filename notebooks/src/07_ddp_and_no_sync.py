# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # 07 DDP and no_sync
#
# **50 minutes**: 20 to read, 30 to do. Before it: `02_the_same_gradient_with_less_memory`.
#
# **Goal.** You can say how often several processes exchange gradients and how many bytes that is, find the
# bug that only counting shows, and name what DDP, ZeRO-1 and FSDP2 each keep on every rank.
#
# No GPU is needed: here two processes on your CPU train together, as two GPUs would. Each is called a **rank**.
# They are started by `torchrun`, not forked from this notebook, so this works on every system. A start
# takes some seconds.

# %%
import memlab
from memlab.cli import main
from memlab.course import check, predict
from memlab.engine.measure import measure_events
from memlab.events import Finished, StepCommunication, StepFinished

WORK = {"model": "mlp", "micro_batch_size": 4, "gradient_accumulation_steps": 4, "world_size": 2, "steps": 2}

# %% [markdown]
# `on_ranks` trains on two ranks and returns all that they said. `of` picks one kind of event.


# %%
def on_ranks(**changes):
    return list(measure_events(memlab.Plan(**{**WORK, **changes})))


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


# %% [markdown]
# ## 1. A bug that only counting shows
#
# DDP gives each rank other samples, and averages the gradients of all ranks by an **all-reduce**, after
# *every* backward. With K micro-batches one exchange is enough, after the last. `model.no_sync()` switches it
# off for the others. Many programs say it so:
#
# ```python
# loss = model(x)
# with model.no_sync() if not last else nullcontext():
#     loss.backward()
# ```
#
# **With K = 4, how many all-reduces does this loop make in one optimizer step?**

# %%
#| student
calls_guess = predict("all-reduces with no_sync around backward", None, "calls")
#| solution
calls_guess = predict("all-reduces with no_sync around backward", 1, "calls")
#| end
calls_guess

# %% [markdown]
# `gradient_sync` says when ranks exchange. memlab counts in DDP's communication hook, which sees every call.

# %%
ways = ("every-micro-step", "backward-only", "last-micro-step", "never")  # change me
said = {way: on_ranks(gradient_sync=way) for way in ways}
for way, events in said.items():
    step = of(StepCommunication, events)[-1]
    print(f"{way:>16}: {step.calls} all-reduces, {sum(step.calls)} in the step")

# %%
calls_guess.against(sum(of(StepCommunication, said["backward-only"])[-1].calls))

# %% [markdown]
# Four, as if `no_sync` were not there. DDP reads its flag in **forward**, where it prepares the exchange;
# around backward it comes too late. So put forward *and* backward inside:
#
# ```python
# with model.no_sync() if not last else nullcontext():
#     model(x).backward()
# ```
#
# **Does the loss show the bug?** Here is the second step's loss, held against the right loop's:


# %%
def second_loss(way):
    return of(StepFinished, said[way])[1].loss


for way in ("every-micro-step", "backward-only"):
    same = abs(second_loss(way) - second_loss("last-micro-step")) < 1e-5
    print(f"{way:>16}: the same loss up to rounding: {same}")

# %% [markdown]
# It does not: an average of sums is the sum of averages. The gradient is right, only the network is used
# K times. Nothing but the count tells.
#
# **Exercise 07-a.** A larger model's gradients travel in 3 buckets, one all-reduce each. K = 8, `no_sync`
# around backward alone. How many all-reduces are there in one optimizer step?
#
# <details><summary>Hint 1</summary>
#
# How many of the 8 micro-steps exchange?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Each micro-step that exchanges sends every bucket.
#
# </details>

# %%
#| student
answer = None  # a number
#| solution
answer = 24
#| end
check("07-a", answer)

# %% [markdown]
# ## 2. Bytes
#
# This model has 282,378 weights in FP32. **How many bytes does a rank hand over in one optimizer step, in
# the right loop and in the wrong one?**

# %%
for way in ("last-micro-step", "backward-only"):
    step = of(StepCommunication, said[way])[-1]
    print(f"{way:>16}: {step.bytes}, {sum(step.bytes):,} bytes in the step")
print(f"{'4 B a weight':>16}: {4 * 282_378:,} bytes")

# %% [markdown]
# One exchange hands over every gradient once. `no_sync` cuts it to 1/K: the claim is true *if* forward is
# inside. (On the wire a ring all-reduce sends about $2 (n-1)/n$ times that with $n$ ranks.)
#
# DDP packs gradients into **buckets** so that sending can begin while backward goes on. The first closes at 1
# MiB, later ones at `bucket_cap_mb`.
#
# **Exercise 07-b.** LLaMA-7B has 6,738,415,616 weights; gradients are BF16, K = 16. How many GB (1e9 bytes)
# of gradients does a rank hand over in one optimizer step, with `no_sync` done right?
#
# <details><summary>Hint 1</summary>
#
# BF16 takes 2 bytes.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Does K matter in the right loop?
#
# </details>

# %%
#| student
answer = None  # a number of GB
#| solution
answer = 2 * 6_738_415_616 / 1e9
#| end
check("07-b", answer)

# %% [markdown]
# ## 3. Never
#
# A loop that stays inside `no_sync` for good never exchanges anything. **What goes wrong, and does anything
# fail?** A **checksum** adds up the bits of all weights of a rank: equal weights, equal sums.

# %%
for way in ("last-micro-step", "never"):
    for step in (0, 1):
        sums = {said_by.checksum for said_by in of(StepCommunication, said[way]) if said_by.step == step}
        print(f"{way:>16}, step {step + 1}: equal weights on both ranks: {len(sums) == 1}")

# %% [markdown]
# Each rank trains a model of its own, on its own half of the data. No error; every loss falls; what is saved
# at the end is rank 0's model, which never saw the other half.
#
# **Exercise 07-c.** Which of these would have shown that ranks never exchange?
#
# <details><summary>Hint 1</summary>
#
# Ask of each: is it another number in the right loop?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Each rank's model still learns, and needs the same memory.
#
# </details>

# %%
#| student
answer = (
    None  # a set of some of "falling loss", "peak memory", "count of all-reduces", "checksums of weights"
)
#| solution
answer = {"count of all-reduces", "checksums of weights"}
#| end
check("07-c", answer)

# %% [markdown]
# ## 4. Tokens on two ranks
#
# Rank 0 holds **8 tokens of loss 1**, rank 1 holds **2 tokens of loss 9**. Each calls backward on its mean,
# and DDP averages over ranks. **Which loss does that minimise, and which is right?**

# %%
#| student
mean_guess = predict("mean loss over all tokens", None, "nats")
#| solution
mean_guess = predict("mean loss over all tokens", 5, "nats")
#| end
mean_guess

# %%
sums, counts = [8.0, 18.0], [8, 2]  # change me
naive = sum(total / count for total, count in zip(sums, counts, strict=True)) / 2
print(f"mean of the ranks' means {naive:.1f}; mean of all tokens {sum(sums) / sum(counts):.1f}")

# %%
mean_guess.against(sum(sums) / sum(counts))

# %% [markdown]
# So ranks must agree on **one count**: an all-reduce of the number of tokens, once a window, before backward.
# Then each divides its *sum* by the tokens of all. But DDP still divides by the number of ranks afterwards.
#
# **Exercise 07-d.** Write `rank_loss(loss_sum, all_tokens, ranks)`: what a rank calls backward on, so that
# DDP's average over the ranks is the mean over all tokens.
#
# <details><summary>Hint 1</summary>
#
# For the example: the average of rank 0's number and rank 1's must be 2.6.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Undo in advance what DDP does at the end.
#
# </details>


# %%
#| student
def rank_loss(loss_sum, all_tokens, ranks):
    return ...


#| solution
def rank_loss(loss_sum, all_tokens, ranks):
    return loss_sum / all_tokens * ranks


#| end
check("07-d", rank_loss)

# %% [markdown]
# memlab's loop does the same. Try it on text of unequal lengths, in a cell of your own; one process on all of the
# data gives the same losses up to rounding:
#
# ```python
# memlab.measure(memlab.Plan(data="ragged-text", micro_batch_size=2, world_size=2, steps=2)).losses
# memlab.measure(memlab.Plan(data="ragged-text", micro_batch_size=4, world_size=1, steps=2)).losses
# ```
#
# ## 5. BatchNorm
#
# BatchNorm normalises by the samples that it sees: on each rank its own micro-batch, and the running
# statistics drift apart. Torch's SyncBatchNorm takes the statistics of all ranks. **Does it work here?**

# %%
try:
    memlab.measure(memlab.Plan(model="convnet", norm="batch", world_size=2, sync_batch_norm=True))
except memlab.PlanError as refusal:
    print(refusal)

# %% [markdown]
# ## 6. Memory on each rank
#
# DDP's buckets are as large as all gradients, and lie beside them. `gradient_as_bucket_view=True` makes the
# gradients views *of* the buckets. **ZeRO-1** divides the optimizer's state among the ranks, **FSDP2** weights,
# gradients and state. **Guess the order of the four peaks.**

# %%
runs = {
    "DDP": of(Finished, said["last-micro-step"])[0].run,
    "views": of(Finished, on_ranks(gradient_as_bucket_view=True, zero_grad="in_place", steps=1))[0].run,
    "ZeRO-1": of(Finished, on_ranks(data_parallel="zero1", steps=1))[0].run,
    "FSDP2": of(Finished, on_ranks(data_parallel="fsdp2", steps=1))[0].run,
}  # change me

# %%
from memlab.run import Rank

memlab.compare({name: Rank(peak=run.peaks_by_phase["optimizer"]) for name, run in runs.items()})

# %% [markdown]
# One column for each way, measured on rank 0, at the largest instant of the optimizer step.
#
# - **DDP**: all of weights, gradients and state on each rank, and the buckets on top.
# - **Views** save one copy of the gradients. They do so where gradients *stay* in the buckets: with K = 1, or
#   zeroed in place as here. Gradients that were set to None are made outside again while micro-batches accumulate.
#   And once, before step 2, DDP lays its buckets out anew: with `steps=2` both lie in memory for an instant.
# - **ZeRO-1**: about half of the state each. Whole tensors are divided, so the ranks differ, as the next cell shows.
# - **FSDP2**: half of everything that stays. In forward and backward the whole weights of the layer at work come on
#   top: its ranks gather them, use them and drop them.

# %%
[f"ZeRO-1, rank {rank.rank}: peak {rank.peak.total:,} B" for rank in runs["ZeRO-1"].ranks]

# %% [markdown]
# What comes on top has to travel. **How often does FSDP2 gather weights in one step of four micro-batches, and how
# often does it exchange gradients?**

# %%
counts = runs["FSDP2"].ranks[0].communication
for calls, size in (("gradient_exchanges", "gradient_bytes"), ("weight_gathers", "weight_bytes")):
    print(f"{calls}: {counts[calls]}, {counts[size]:,} B")

# %% [markdown]
# Gradients travel once a window, by **reduce-scatter**: each rank receives its share of their sum. Weights are
# gathered by **all-gather** in *every* micro-batch: each of the 4 blocks for forward and once more for backward, and
# the rest once. That makes 4 x (2 x 4 + 1), and `no_sync` saves none of it.
#
# For exchanging gradients only once a window (its `no_sync` is `set_requires_gradient_sync(False)`) FSDP2 pays in
# memory: between micro-batches a rank keeps *whole* gradients. Set `steps=2` for it above, and look when its peak
# comes. With `gradient_sync="every-micro-step"` it goes back, for K times the traffic of gradients.
#
# **Exercise 07-e.** 6,738,415,616 weights, gradients and AdamW's two moments, all FP32. How many GB (1e9 bytes)
# of these does each of 8 ranks hold with FSDP2?
#
# <details><summary>Hint 1</summary>
#
# Count the bytes of one weight on a single GPU first: lesson 01.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Which of the terms does FSDP2 divide?
#
# </details>

# %%
#| student
answer = None  # a number of GB
#| solution
answer = 16 * 6_738_415_616 / 8 / 1e9
#| end
check("07-e", answer)

# %% [markdown]
# ## 7. Several machines
#
# The same plan on two machines needs no other program: one `torchrun` command on each; the first of them on
# the machine with that address. `memlab train` prints them:

# %%
words = "train --world-size 4 --machines 2 --rendezvous 10.0.0.1:29400 --steps 100"
exit_status = main(words.split())

# %% [markdown]
# ## 8. See it move
#
# Press **Run**. Each lane is a rank; forward, backward and all-reduce are bars on one clock. Where does the
# all-reduce lie? Now set *sync* to *backward only*, then to *never*, and watch bars, counts, and the line about
# the weights. Then try 4 ranks, ZeRO-1 and FSDP2, and look at the memory of each rank, and at FSDP2's all-gathers.

# %% tags=["nbval-ignore-output"]
bench = memlab.Bench(model="mlp", micro_batch_size=4, gradient_accumulation_steps=4, world_size=2, steps=100)
bench

# %% [markdown]
# ## Key points
#
# - DDP averages gradients over the ranks after every backward. `no_sync` cuts the exchanges to 1/K only if forward
#   *and* backward are inside; around backward alone it does nothing. Losses and gradients do not show it: count.
# - One exchange hands over the bytes of all gradients, whatever K is.
# - Ranks that never exchange drift apart without an error. Compare checksums of the weights.
# - Divide by the tokens of all ranks, and multiply by the number of ranks, which DDP divides by.
# - BatchNorm sees one rank's micro-batch. SyncBatchNorm needs GPUs; GroupNorm needs nothing.
# - DDP holds everything, and buckets as large as the gradients; views save that copy. ZeRO-1 divides the optimizer's
#   state, FSDP2 weights and gradients too, gathers weights in every micro-batch, and then `no_sync` costs memory.
