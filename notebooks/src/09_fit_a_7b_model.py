# %% [markdown]
# # 09 Fit a 7B model
#
# **50 minutes**: 20 to read, 30 to do. Before it: `01_where_the_memory_goes`, `04_mixed_precision`,
# `05_activation_checkpointing`.
#
# **Goal.** You can say, before you rent a GPU, what a 7B model needs in any precision, with all weights or with
# adapters, what the loss of a large vocabulary costs, and which plan fits a 24, 40 or 80 GB card.
#
# No GPU is needed: small models are measured here, the 7B is **predicted**. A prediction runs the training loop
# on tensors without data, by a GPU's rules. It leaves out the workspaces of CUDA's libraries.

# %%
import memlab
from memlab.course import check, predict
from memlab.units import GiB, format_bytes

# %% [markdown]
# ## 1. "An 80 GB card holds a 7B model in FP32"
#
# The claim: 28 GB of weights and 56 GB of AdamW's moments, so batch size 1 just about fits. LLaMA-7B has
# 6,738,415,616 parameters. **How many GB (1e9 bytes) do its weights, gradients and moments take in FP32?**

# %%
#| student
states_guess = predict("states in FP32", None, "GB")
#| solution
states_guess = predict("states in FP32", 84, "GB")
#| end
states_guess

# %% [markdown]
# `SEVEN` is one sample of 2,048 tokens at a time, two of them a step, and a fused AdamW, which needs no
# temporaries. From the second micro-batch and the second step on everything repeats.

# %%
SEVEN = {
    "model": "llama-7b",
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 2,
    "steps": 2,
    "fused": True,
}
fp32 = memlab.predict(memlab.Plan(**SEVEN), card="a100-80gb")
fp32

# %%
states = fp32.peak["parameters"] + fp32.peak["gradients"] + fp32.peak["optimizer_state"]
print(f"{states:,} B, {states / 6_738_415_616:.0f} B a parameter; fits: {fp32.fits}")
states_guess.against(round(states / 1e9, 1))

# %% [markdown]
# **False**, then: the gradients were forgotten, and activations come on top. Mind the units: a GB is 1e9 bytes, a
# GiB is 1.07e9, and an "80 GB" A100 shows torch 79.2 GiB, less 0.25 GiB and more for the CUDA context.
#
# **Exercise 09-a.** How many GB (1e9 bytes) are weights, gradients and moments of LLaMA-7B in FP32?
#
# <details><summary>Hint 1</summary>
#
# Four numbers for each parameter: the weight, its gradient and two moments.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `states` has it in bytes.
#
# </details>

# %%
#| student
answer = None  # a number
#| solution
answer = states / 1e9
#| end
check("09-a", answer)

# %% [markdown]
# ## 2. Five ways to keep a weight
#
# With BF16 weights people argue about what to keep beside them. Each of these is a real setting:
#
# | B a parameter | weight | gradient | moments | FP32 copy of the weight |
# | --- | --- | --- | --- | --- |
# | 8 | 2 | 2 | 2 + 2 | |
# | 12 | 2 | 2 | 4 + 4 | |
# | 16 | 2 | 2 | 4 + 4 | 4 |
# | 18 | 2 | 4 | 4 + 4 | 4 |
# | 20 | 2 | 2 + 4 | 4 + 4 | 4 |
#
# 8 B and 12 B lose updates that are small beside a BF16 weight (`04_mixed_precision`), 8 B small changes of the
# moments too; an FP32 copy keeps them. 18 B and 20 B also add up micro-batches in FP32; 20 B keeps the BF16
# gradient beside that sum.

# %%
SMALL = {"precision": "bf16-true", "micro_batch_size": 1, "sequence_length": 32, "steps": 2}
POLICIES = {
    "8": {},
    "12": {"optimizer_state_precision": "fp32"},
    "16": {"master_weights": True},
    "18": {"master_weights": True, "gradient_precision": "fp32"},
    "20": {"master_weights": True, "gradient_precision": "bf16+fp32"},
}

# %% [markdown]
# Is the table true? `gpt-tiny` trains each of them here, and the meter counts what is alive while the optimizer
# steps. The few bytes beyond a whole number are AdamW's step counters.


# %%
def bytes_a_parameter(run):
    peak = run.peaks_by_phase["optimizer"]
    states = peak["parameters"] + peak["gradients"] + peak["optimizer_state"]
    return states / (peak["parameters"] / 2)  # a BF16 weight has two bytes


for name, policy in POLICIES.items():  # change me
    run = memlab.measure(memlab.Plan(**SMALL, **policy))
    print(f"policy {name:>2}: {bytes_a_parameter(run):.4f} B a parameter, {run.source}")

# %% [markdown]
# The same for the 7B, predicted, and FP32 beside them. **Which fit 80 GB? Guess before you run the next cell.**

# %%
in_bf16 = {**SEVEN, "precision": "bf16-true"}
full = {
    f"{name} B": memlab.predict(memlab.Plan(**in_bf16, **policy), card="a100-80gb")
    for name, policy in POLICIES.items()
}

# %%
from memlab.ui.budget import budget

budget({**full, "FP32": fp32})

# %% [markdown]
# The FP32 copy of the weights counts as optimizer state here. Only 8 B a parameter fits, and BF16 weights without
# an FP32 copy swallow small updates.
#
# "A 7B model needs at least 120 GB: 14 weights + 56 optimizer + 14 gradients + 36 activations": which policy did
# its author have in mind? And the activations? **Compare your row "activations" with 36 GB.**
#
# **Exercise 09-b.** Which policy's states are 14 + 14 + 56 GB?
#
# <details><summary>Hint 1</summary>
#
# For about 7e9 parameters, 14 GB are 2 B each.
#
# </details>
# <details><summary>Hint 2</summary>
#
# 56 GB are 8 B each, for two moments.
#
# </details>

# %%
#| student
answer = None  # "8", "12", "16", "18" or "20"
#| solution
answer = "12"
#| end
check("09-b", answer)

# %% [markdown]
# So **the sum is right for one policy**, which keeps no FP32 copy of the weights; with a copy the states alone are
# 108 GB. And 36 GB of activations are no constant: they grow with the batch and the text. At what micro-batch are
# they reached?

# %%
for size in (1, 4):  # change me
    plan = memlab.Plan(**{**in_bf16, "micro_batch_size": size}, **POLICIES["12"])
    run = memlab.predict(plan, card="a100-80gb")
    print(f"micro-batch {size}: {run.peak['activations'] / 1e9:.1f} GB of activations")

# %% [markdown]
# ## 3. "With checkpointing a 7B model trains on a 24 GB card"
#
# Checkpointing recomputes activations. **By how many GiB does the peak fall at 16 B a parameter?**

# %%
#| student
saved_guess = predict("saved by checkpointing", None, "GiB")
#| solution
saved_guess = predict("saved by checkpointing", 36, "GiB")
#| end
saved_guess

# %%
recomputed = {**in_bf16, **POLICIES["16"], "activation_checkpointing": "full"}
full["16 B, ckpt"] = memlab.predict(memlab.Plan(**recomputed), card="a100-80gb")
budget({name: full[name] for name in ("16 B", "16 B, ckpt")})

# %%
saved_guess.against(round((full["16 B"].peak.total - full["16 B, ckpt"].peak.total) / GiB, 1))

# %% [markdown]
# **Not for full fine-tuning**: the states stay, and they are 54 to 135 GB. Full fine-tuning of a 7B on one card
# is a question of states; several cards can share them out.
#
# ## 4. "Even with LoRA the batch stays at 1 or 2"
#
# Low-rank adapters freeze the weights: gradients and moments are needed for the adapters alone. **What is
# left?** On a 24 GB card, with BF16 weights:

# %%
ADAPTERS = {**in_bf16, "lora_rank": 16}
lora = {
    policy: memlab.predict(memlab.Plan(**ADAPTERS, activation_checkpointing=policy), card="rtx-4090")
    for policy in ("none", "selective", "full")
}
budget(lora)

# %% [markdown]
# Two things to see. Without checkpointing even one sample does not fit 24 GB. And `selective`, which keeps the
# result of every matrix product, keeps *more* than `none`: a frozen product needs nothing for a weight's
# gradient, so without checkpointing much is not kept at all.
#
# **Exercise 09-c.** Which term does LoRA leave as it was that grows with the batch?
#
# <details><summary>Hint 1</summary>
#
# Compare the column `none` with the column `8 B` of the table above, row by row.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Besides the temporaries, two rows are nearly the same. One of them does not know how large the batch is.
#
# </details>

# %%
#| student
answer = None  # "weights", "gradients", "optimizer state" or "activations"
#| solution
answer = "activations"
#| end
check("09-c", answer)

# %% [markdown]
# So *without* checkpointing the claim is near the truth for one card size: a 24 GB card holds no text of 2,048
# tokens, one of 40 GB two, one of 80 GB six. **How large a micro-batch fits 24 GB with checkpointing?**

# %%
for size in (4, 8):  # change me
    plan = memlab.Plan(**{**ADAPTERS, "micro_batch_size": size}, activation_checkpointing="full")
    run = memlab.predict(plan, card="rtx-4090")
    print(f"micro-batch {size}: reserve {format_bytes(run.peak_reserved)}, fits: {run.fits}")

# %% [markdown]
# ## 5. The logits
#
# The last matrix makes a number for each token *and each word of the vocabulary*; the loss copies them to FP32,
# takes logarithms of probabilities, and backward makes their gradient. LLaMA-7B has 32,000 words, llama-3-8b
# 128,256. `logits_memory` tells the loss's own tensors apart.

# %%
from memlab.logits import logits_memory

EIGHT = {**ADAPTERS, "model": "llama-3-8b", "activation_checkpointing": "full"}
whole = memlab.predict(memlab.Plan(**EIGHT), card="rtx-4090")
logits_memory(whole).at_most

# %% [markdown]
# The logits count nothing here: they are dropped as soon as their FP32 copy is made.
#
# **Exercise 09-d.** How many bytes of logits, copies and gradient does the loss hold for each token of
# llama-3-8b, when it holds most?
#
# <details><summary>Hint 1</summary>
#
# The micro-batch is one text of 2,048 tokens.
#
# </details>
# <details><summary>Hint 2</summary>
#
# It is a multiple of 128,256.
#
# </details>

# %%
#| student
answer = None  # a number of bytes
#| solution
answer = sum(logits_memory(whole).at_most.values()) / 2048
#| end
check("09-d", answer)

# %% [markdown]
# Nobody needs all logits at once. `loss_chunks=8` cuts the tokens into eight pieces, computes head and loss of
# one after the other, and computes the logits again in backward: one more product with the head.
# **What does that leave of the peak?**

# %%
chunked = memlab.predict(memlab.Plan(**EIGHT, loss_chunks=8), card="rtx-4090")
budget({"whole": whole, "8 chunks": chunked}, cards=("rtx-4090",))

# %% [markdown]
# It is the same training: the losses agree but for rounding, here measured on `gpt-tiny`.

# %%
losses = [
    memlab.measure(memlab.Plan(micro_batch_size=2, steps=3, loss_chunks=chunks)).losses for chunks in (1, 8)
]
print("largest difference below 1e-4:", max(abs(a - b) for a, b in zip(*losses, strict=True)) < 1e-4)

# %% [markdown]
# ## 6. Let it search
#
# The planner tries what you leave open: here how much to recompute, for LoRA on 24 GB with 8 samples a step. It
# keeps what fits and ranks it by counted work; it times nothing.

# %%
from memlab.cli.plan_report import plan_report

fixed = {"precision": "bf16-true", "lora_rank": 16, "fused": True, "steps": 2, "micro_batch_size": 1}
print(plan_report(memlab.feasible_plans("llama-7b", "rtx-4090", 8, **fixed)))

# %% [markdown]
# Where nothing fits it says what comes nearest, and what would help; it has tried what it says.

# %%
fixed |= {"lora_rank": 0, "activation_checkpointing": "full"}
try:
    memlab.feasible_plans("llama-7b", "rtx-4090", 8, **fixed)
except memlab.planner.NothingFits as nothing:
    print(nothing)

# %% [markdown]
# **Exercise 09-e.** Hand in a predicted run of `llama-7b`, 2,048 tokens, that fits `card="rtx-4090"`.
#
# <details><summary>Hint 1</summary>
#
# `memlab.predict(memlab.Plan(...), card="rtx-4090")`
#
# </details>
# <details><summary>Hint 2</summary>
#
# Which column of section 4 says yes?
#
# </details>

# %%
#| student
answer = None  # the Run that memlab.predict gives
#| solution
answer = lora["full"]
#| end
check("09-e", answer)

# %% [markdown]
# ## 7. See the whole field
#
# Each cell of the map is a prediction; a line parts what fits a card from what does not. It fills while you look,
# in a process of its own. Turn the lists: **which setting moves the 24 GB line furthest?** The button
# "table" says the same as text.

# %% tags=["nbval-ignore-output"]
heat_map = memlab.HeatMap(model="llama-7b", precision="bf16-true", lora_rank=16, fused=True)
heat_map

# %% [markdown]
# And the small one, live: set BF16 weights and watch which colours shrink.

# %% tags=["nbval-ignore-output"]
bench = memlab.Bench(micro_batch_size=2, precision="bf16-true")
bench

# %% [markdown]
# ## Key points
#
# - States first: parameters x 8, 12, 16, 18 or 20 B (FP32 and autocast: 16 and more). 7B in FP32: 108 GB.
# - "120 GB for a 7B" adds up for 12 B a parameter and about four texts of 2,048 tokens at once; it is no constant.
# - Checkpointing saves activations alone: it does not bring full fine-tuning to 24 GB.
# - LoRA removes gradients and moments of the frozen weights, not activations. With full checkpointing a 7B then
#   fits 24 GB, and more than one sample.
# - A large vocabulary costs 12 B x words a token in the loss; chunks take that away for one more product.
# - GB are not GiB, and the reserve is more than the live tensors: say which one you mean.
