# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # The bench
#
# Here you train a small language model and watch where its memory goes. It trains for real, on
# Python's own manual, and every byte that you see was counted while it trained.
#
# You need no GPU. Run the cells from top to bottom with **Shift + Enter**.

# %%
import memlab

# %% [markdown]
# ## Set it up
#
# One optimizer step here sees 8 x 4 = 32 samples: four micro-batches of 8, one after another.
#
# The next cell shows the bench. **Before you press Run, guess:** the curve of one step has four
# hills. Why four? And is the last one higher than the first?

# %%
bench = memlab.Bench(micro_batch_size=8, gradient_accumulation_steps=4)
bench

# %% [markdown]
# The pale hills are a **prediction**, made before anything was trained. Move a slider and they move.
#
# Press **Run**. What is measured fills the hills with colour, and the dotted line stays: on a CPU both
# agree to the byte, and the bench says the difference.
#
# - Each hill is one micro-batch. On the way up (F, forward) activations pile up; on the way down
#   (B, backward) they are used and dropped.
# - The ground floor stays: parameters, optimizer state, and from the first backward on the gradients.
# - From the second optimizer step on the ground floor is higher: AdamW made its state in the first.
#
# Now turn **one** thing. The dotted line shows at once what the next run will take. Press Run again, and look
# at *Peak of each run*; the tick on each bar is what was predicted for it. Pin a run to keep it.
#
# | turn this | and watch |
# | --- | --- |
# | micro-batch size 8 to 4, K 4 to 8 | the global batch stays 32; the hills halve |
# | precision fp32 to bf16 | activations shrink, low-precision copies appear |
# | activation checkpointing to full | the hills become a row of small teeth |
# | optimizer AdamW to SGD | the optimizer state is gone |
# | predict for a card: a T4 | what the same step takes on a GPU that you do not have |

# %% [markdown]
# ## The same without widgets
#
# If nothing appears above, or if you like code better: the same bench runs from a cell. It waits
# until the run has ended and hands you the result.

# %%
run = bench.run(steps=3, block=True)

# %% [markdown]
# A `Run` holds what was measured. At the highest instant of all three steps these bytes were alive.
# On a CPU they are exact, and the same on every machine:

# %%
for category, size in run.peak.items():
    if size:
        print(f"{category:<20} {size:>12,} bytes")
print(f"{'all':<20} {run.peak.total:>12,} bytes, in {run.peak_place}")

# %% [markdown]
# ## Half the micro-batch, twice as many
#
# The global batch stays 32. **Guess first:** does the peak halve?

# %%
smaller = bench.run(steps=3, block=True, micro_batch_size=4, gradient_accumulation_steps=8)
for name in ("parameters", "optimizer_state", "gradients", "activations"):
    print(f"{name:<16} {run.peak[name]:>12,} -> {smaller.peak[name]:>12,}")

# %% [markdown]
# Only the activations shrink. Weights, gradients and optimizer state do not care how large a
# micro-batch is. That is the whole trick of gradient accumulation, and its limit.
#
# The bench above is still yours: scroll up and press Run.
