# %% [markdown]
# # 01 Where the memory goes
#
# **40 minutes**: 15 to read, 25 to do. Before it: `00_bench`.
#
# **Goal.** You can say which part of a training step's memory gradient accumulation, mixed precision and
# activation checkpointing shrink, and which part they leave alone. You will have measured each on the
# same work, to the byte.
#
# You need no GPU. Everything is trained for real, on the CPU, on real text (Python's own manual).

# %%
import memlab
from memlab.course import check, predict

WORK = {"sequence_length": 64, "steps": 2}

# %% [markdown]
# ## 1. One training step
#
# An optimizer step takes a batch, runs the model **forward**, runs **backward** to get gradients, and lets
# the **optimizer** change the weights. `Plan` names everything that decides such a step; `measure` trains
# it and counts every byte that is alive. Two steps do: AdamW makes its state in the first one, so that
# only the second one shows all of it.
#
# Our model, `gpt-tiny`, is a small GPT that reads 64 bytes of text a sample. At micro-batch size 8, **what share of the peak do you think its
# weights take?** Write a number before you run anything. A wrong guess teaches more than none.

# %%
#| student
weights_guess = predict("weights' share", None, "% of the peak")
#| solution
weights_guess = predict("weights' share", 30, "% of the peak")
#| end
weights_guess

# %%
baseline = memlab.measure(memlab.Plan(micro_batch_size=8, **WORK))
memlab.compare({"baseline": baseline})

# %%
weights_guess.against(round(100 * baseline.peak["parameters"] / baseline.peak.total))

# %% [markdown]
# ## 2. A formula beside the measurement
#
# Three of these rows need no measurement. With $P$ trained weights in FP32 (4 bytes each) and AdamW:
#
# | row | formula | why |
# | --- | --- | --- |
# | parameters | $4P$ | |
# | gradients | $4P$ | one number for each weight |
# | optimizer state | $8P$ | AdamW keeps two averages for each weight |
#
# They are decided by the model and the optimizer alone. **Do the formulas hold?** The run also keeps the
# largest instant of each phase; while the optimizer steps, all three are there in full.

# %%
instant = baseline.peaks_by_phase["optimizer"]  # change me: "forward", "backward"
for category in ("parameters", "gradients", "optimizer_state"):
    ratio = instant[category] / instant["parameters"]
    print(f"{category:>16}  {instant[category]:>12,} B  = {ratio:.4f} x parameters")

# %% [markdown]
# The optimizer's row is a few bytes over: AdamW also counts its steps, in 4 bytes for each weight tensor.
# At the *peak*, in the table above, the gradients were nearly missing: the peak came early in backward, when
# few of them were made and most activations were still alive.
#
# The largest row, **activations**, is what forward keeps so that backward can use it.

# %% [markdown]
# **Exercise 01-a.** Which row doubles when the micro-batch size doubles?
#
# <details><summary>Hint 1</summary>
#
# Which of the formulas above contain the number of samples?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Measure it: `memlab.measure(memlab.Plan(micro_batch_size=16, **WORK))`.
#
# </details>

# %%
#| student
answer = None  # one of "parameters", "gradients", "optimizer state", "activations"
#| solution
answer = "activations"
#| end
check("01-a", answer)

# %% [markdown]
# ## 3. Gradient accumulation
#
# Instead of 8 samples at once, take 2 at a time, four times, add up the gradients, and only then step.
# The number of micro-batches is called $K$; the **global batch size** stays
# $2 \times K = 2 \times 4 = 8$, so the optimizer sees the same samples and makes the same step.
#
# A widely read article says that accumulation brings the memory to about 55 % of the baseline, "for free".
# **What do you expect here?**

# %%
#| student
accumulation_guess = predict("accumulation", None, "% of the baseline's peak")
#| solution
accumulation_guess = predict("accumulation", 55, "% of the baseline's peak")
#| end
accumulation_guess

# %%
K = 4  # change me: 1, 2, 4 or 8
plan = memlab.Plan.for_global_batch(8, micro_batch_size=8 // K, **WORK)
accumulation = memlab.measure(plan)
memlab.compare({"baseline": baseline, f"K = {K}": accumulation})

# %%
accumulation_guess.against(round(100 * accumulation.peak.total / baseline.peak.total))

# %% [markdown]
# The activations shrank to a quarter, like the micro-batch. Parameters and optimizer state are what they
# were. So accumulation can save **the share that activations had**, and no more: much where they dominate,
# nearly nothing where the weights do. No percentage holds for every model.
#
# The gradients' row *grew*. In the baseline few of them existed when the activations were at their highest.
# With $K \ge 2$ the gradients of the first micro-batch wait while the next one runs forward. **At one and
# the same micro-batch size, what does accumulation cost?**

# %%
small = {"micro_batch_size": 2, **WORK}
steps = {k: memlab.measure(memlab.Plan(gradient_accumulation_steps=k, **small)) for k in (1, 2, 6)}
memlab.compare({f"K = {k}": run for k, run in steps.items()})

# %%
extra = steps[2].peak.total - steps[1].peak.total
print(f"K = 2 takes {extra:,} B more than K = 1; one set of gradients is {steps[2].peak['parameters']:,} B.")
print(f"K = 6 takes {steps[6].peak.total - steps[2].peak.total:,} B more than K = 2.")

# %% [markdown]
# The price is at most one set of gradients (here a little less, because with K = 1 the peak was not in
# backward but in the optimizer's step), and it is paid once: every later micro-step finds the gradients
# there and adds to them in place.

# %% [markdown]
# **Exercise 01-b.** With micro-batch size 2, what is the peak of K = 100, in bytes? Do not train 100 micro-batches.
#
# <details><summary>Hint 1</summary>
#
# What changed between K = 2 and K = 6?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Nothing that one micro-step leaves behind grows with the number of micro-steps before it.
#
# </details>

# %%
#| student
answer = None  # a number of bytes
#| solution
answer = steps[2].peak.total
#| end
check("01-b", answer)

# %% [markdown]
# ## 4. Mixed precision
#
# Under **autocast** the matrix products run in a 16-bit format. The same article says: "weights and
# activations are halved", to about 65 % of the baseline. **Which rows do you expect to be halved?** Look at
# the parameters' row first.

# %%
#| student
mixed_guess = predict("mixed precision", None, "% of the baseline's peak")
#| solution
mixed_guess = predict("mixed precision", 65, "% of the baseline's peak")
#| end
mixed_guess

# %%
mixed = memlab.measure(memlab.Plan(micro_batch_size=8, precision="bf16-mixed", **WORK))
memlab.compare({"baseline": baseline, "bf16-mixed": mixed})

# %%
mixed_guess.against(round(100 * mixed.peak.total / baseline.peak.total))

# %% [markdown]
# The weights were **not** halved: they stay in FP32, and autocast adds 16-bit *copies* of them, which live
# until backward is done with them. Gradients of the weights are FP32 too. Activations shrink, but not to
# half: the loss and, depending on the device, normalisations and softmax keep FP32.
#
# So autocast adds bytes that follow the *weights* and saves bytes that follow the *samples*. **What if there
# are few samples, and short ones?**

# %%
sizes = {"micro_batch_size": 1, "sequence_length": 32, "steps": 2}  # change me
pair = [memlab.measure(memlab.Plan(precision=precision, **sizes)) for precision in ("fp32", "bf16-mixed")]
memlab.compare({run.plan.precision: run for run in pair})

# %% [markdown]
# Nothing saved, nothing lost: with so few samples the peak is the optimizer's step, and there autocast's
# copies are gone already.
#
# **Exercise 01-c.** Find sizes at which `bf16-mixed` has the **larger** peak of the two.
#
# <details><summary>Hint 1</summary>
#
# The saving follows the samples and their length; make both small.
#
# </details>
# <details><summary>Hint 2</summary>
#
# An optimizer with less to remember lowers the peak of its own step. `optimizer` is a field of the Plan.
#
# </details>

# %%
#| student
answer = None  # your two runs, as (fp32_run, bf16_run)
#| solution
sizes = {"micro_batch_size": 1, "sequence_length": 8, "optimizer": "sgd", "steps": 2}
answer = [memlab.measure(memlab.Plan(precision=precision, **sizes)) for precision in ("fp32", "bf16-mixed")]
#| end
check("01-c", answer)

# %% [markdown]
# ## 5. Activation checkpointing
#
# Checkpointing keeps only the *input* of each block and computes the rest again when backward needs it:
# less memory for more work. **What is left of the peak when every block is recomputed?**

# %%
#| student
checkpointing_guess = predict("checkpointing", None, "% of the baseline's peak")
#| solution
checkpointing_guess = predict("checkpointing", 50, "% of the baseline's peak")
#| end
checkpointing_guess

# %%
policy = "full"  # change me: "none", "selective", "every-2", "every-3", "full"
checkpointing = memlab.measure(memlab.Plan(micro_batch_size=8, activation_checkpointing=policy, **WORK))
memlab.compare({"baseline": baseline, policy: checkpointing})

# %%
checkpointing_guess.against(round(100 * checkpointing.peak.total / baseline.peak.total))

# %% [markdown]
# The activations shrank to an eighth. The peak moved as well: it now comes late in backward, when nearly all
# gradients are made, so that the gain is smaller than the activations alone would suggest.
#
# Three techniques, and all three work on the same row. **Before you run the next cells: what will all three
# together reach, and which row will be the largest then?**
#
# ## 6. All of them, on the same work

# %%
together = memlab.Plan(
    micro_batch_size=2,
    gradient_accumulation_steps=4,
    precision="bf16-mixed",
    activation_checkpointing="full",
    **WORK,
)
everything = memlab.measure(together)

# %%
memlab.compare(
    {
        "baseline": baseline,
        "accumulation": accumulation,
        "bf16-mixed": mixed,
        "checkpointing": checkpointing,
        "all three": everything,
    }
)

# %% [markdown]
# All three together reach hardly more than checkpointing alone. What is left when the activations are gone is
# $16P$: weights, gradients and optimizer state, 60 % of this baseline, and autocast's copies come on top.
# No accumulation, autocast or checkpointing touches the $16P$. What does: fewer trained weights (LoRA), a
# smaller optimizer, 16-bit weights, or spreading them over several GPUs.

# %% [markdown]
# **Exercise 01-d.** Which of these make the optimizer's state smaller?
#
# <details><summary>Hint 1</summary>
#
# Read the row of the optimizer state in the last table from left to right.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `optimizer="sgd"` is a field of the Plan; measure it.
#
# </details>

# %%
#| student
answer = None  # a set of some of "accumulation", "mixed precision", "checkpointing", "sgd"
#| solution
answer = {"sgd"}
#| end
check("01-d", answer)

# %% [markdown]
# ## 7. Your own plan
#
# A card with a budget: find a plan with **global batch size 16** for `gpt-tiny` with AdamW (and the
# lesson's `WORK`) whose peak stays under 56 MiB. More than one plan does it. Which costs the least extra work?

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# How many bytes does $16P$ leave free under the budget?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Smaller micro-batches cost no extra work per sample; checkpointing computes forward twice.
#
# </details>

# %%
#| student
answer = None  # the Run of your plan
#| solution
answer = memlab.measure(memlab.Plan.for_global_batch(16, micro_batch_size=1, **WORK))
#| end
check("01-e", answer)

# %% [markdown]
# ## 8. See it move
#
# The bench shows the same, live: set micro-batch size, accumulation, precision and checkpointing, press
# **Run**, and watch the saw-tooth of the micro-steps. Which of the peaks is the highest: end of forward,
# inside backward, or the optimizer's step?

# %% tags=["nbval-ignore-output"]
bench = memlab.Bench(micro_batch_size=2, gradient_accumulation_steps=4)
bench

# %% [markdown]
# ## Key points
#
# - A step's memory is weights + gradients + optimizer state (decided by model and optimizer) plus
#   activations (decided by what goes through the model at once) plus what comes and goes.
# - Accumulation, mixed precision and checkpointing shrink activations, and only them. What they save is
#   the share that activations had.
# - Accumulation can cost up to one set of gradients, once: from K = 1 to K = 2, never after.
# - Autocast keeps FP32 weights and adds 16-bit copies: with few samples it can raise the peak.
# - A percentage without model, batch and length means nothing. Measure.
