# %% [markdown]
# # 02 The same gradient with less memory
#
# **50 minutes**: 20 to read, 30 to do. Before it: `01_where_the_memory_goes`.
#
# **Goal.** You can say when gradients accumulated over K micro-batches equal the gradient of the large
# batch, repair the loop where they do not, and read the memory that this saves.

# %%
import torch
from torch import nn

import memlab
from memlab.course import check, predict
from memlab.events import Notice, StepFinished

# %% [markdown]
# ## 1. The equality
#
# The gradient of a mean over 8 samples is the mean of 8 gradients. So one may take them two at a time, add
# up, and divide by the number of micro-batches $K = 4$:
#
# $$\nabla \frac18 \sum_{i=1}^{8} \ell_i \;=\; \frac14 \sum_{k=1}^{4} \nabla \frac12 \sum_{i \in k} \ell_i$$
#
# A small model is enough to see it. `gradient` runs backward for each loss *as it comes*, so that only one
# micro-batch's graph is alive at a time; torch adds into `.grad` by itself.

# %%
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
x, y = torch.randn(8, 16), torch.randn(8, 1)


def gradient(losses):
    model.zero_grad()
    for loss in losses:
        loss.backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


# %% [markdown]
# **Do the two gradients agree?** Change `size`, the micro-batch size, to 1 and 4 as well. Then try 3, which
# does not divide 8, and find out what goes wrong; section 3 comes back to it.

# %%
size = 2  # change me
parts = list(zip(x.split(size), y.split(size), strict=True))
whole = gradient([(model(x) - y).square().mean()])
split = gradient((model(a) - b).square().mean() / len(parts) for a, b in parts)
print(f"{len(parts)} micro-batches: equal up to rounding:", torch.allclose(whole, split, atol=1e-6))

# %% [markdown]
# In exact arithmetic they are the same. In floating point they are the same *up to rounding*: the terms
# are added in another order.
#
# ## 2. Forgetting to divide
#
# **Without the division by K, by which factor is the gradient too long?** And by which factor is one
# step of the weights too long, with SGD and with AdamW?

# %%
#| student
factor_guess = predict("AdamW's step without dividing by 4", None, "x the right step")
#| solution
factor_guess = predict("AdamW's step without dividing by 4", 4, "x the right step")
#| end
factor_guess

# %% [markdown]
# `step_length` makes one optimizer step from the given gradient and says how far the weight moved.


# %%
def step_length(kind, gradient, clip=None):
    weight = nn.Parameter(torch.zeros_like(gradient))
    optimizer = kind([weight], lr=0.01)
    weight.grad = gradient.clone()
    if clip:
        nn.utils.clip_grad_norm_([weight], clip)
    optimizer.step()
    return weight.norm().item()


# %%
K = 4  # change me
for kind, clip in ((torch.optim.SGD, None), (torch.optim.SGD, 0.1), (torch.optim.AdamW, None)):
    ratio = step_length(kind, K * whole, clip) / step_length(kind, whole, clip)
    print(f"{kind.__name__:>6}, clip {clip}: the step is {ratio:.2f} x the right one")

# %%
factor_guess.against(
    round(step_length(torch.optim.AdamW, K * whole) / step_length(torch.optim.AdamW, whole), 2)
)

# %% [markdown]
# "Without dividing, the learning rate is multiplied by K" is true of SGD. AdamW divides by the gradient's own
# size, so the factor cancels; clipping to a norm hides it as well. That is why this bug lives so long: the
# loss curve looks fine.
#
# One of Adam's family is not so safe. Adam with `weight_decay` adds $0.1\,w$ to the *gradient* (an L2 term);
# AdamW takes it off the weight, apart from the gradient. **Without dividing, which of the two steps points
# elsewhere?**

# %%
for kind in (torch.optim.Adam, torch.optim.AdamW):
    for factor in (1, 4):  # change me
        weight = nn.Parameter(torch.tensor([1.0, -1.0]))
        optimizer = kind([weight], lr=0.01, weight_decay=0.1)
        for gradient in (torch.tensor([0.02, 0.15]), torch.tensor([0.05, 0.05])):
            weight.grad = factor * gradient
            optimizer.step()
        print(f"{kind.__name__:>5}, gradient x {factor}: {weight[0]:.4f}, {weight[1]:.4f}")

# %% [markdown]
# AdamW ends at the same weights (up to the tiny `eps` in its division). Adam does not: four times the gradient beside
# the same $0.1\,w$ makes the decay four times weaker.
#
# **Exercise 02-a.** SGD with a weight decay inside the gradient (`weight_decay=0.1`, which adds
# $0.1\,w$ to it), no clipping, K = 8, no division. By which factor is the part of the step that comes from
# the *loss* too long?
#
# <details><summary>Hint 1</summary>
#
# Weight decay is added in the optimizer, after all micro-batches.
#
# </details>
# <details><summary>Hint 2</summary>
#
# How many losses' gradients have been added when the optimizer steps?
#
# </details>

# %%
#| student
answer = None  # a number
#| solution
answer = 8
#| end
check("02-a", answer)

# %% [markdown]
# ## 3. Micro-batches of unequal size
#
# Text comes in pieces of unequal length, and padding does not count. Say that one micro-batch has **8 tokens
# of loss 1** and the next **2 tokens of loss 9**. **What is the mean loss of the window?**

# %%
#| student
mean_guess = predict("mean loss", None, "nats")
#| solution
mean_guess = predict("mean loss", 5, "nats")
#| end
mean_guess

# %%
token_losses = [torch.full((8,), 1.0), torch.full((2,), 9.0)]  # change me
mean_of_means = sum(losses.mean() for losses in token_losses) / len(token_losses)
mean_of_tokens = torch.cat(token_losses).mean()
print(f"mean of the micro-batches' means {mean_of_means:.1f}; mean of all tokens {mean_of_tokens:.1f}")

# %%
mean_guess.against(round(mean_of_tokens.item(), 3))

# %% [markdown]
# Dividing by K gives every micro-batch the same weight, so that the two tokens of the short one weigh four
# times as much as the others. The large batch gives every *token* the same weight. So count before you
# train: add up sums, and divide by **one number for the whole window**.
#
# **Exercise 02-b.** Write `window_loss(sums, counts)`: `sums` holds the sum of token losses of each
# micro-batch, `counts` how many tokens each counted.
#
# <details><summary>Hint 1</summary>
#
# For the example above: `sums = [8.0, 18.0]`, `counts = [8, 2]`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# One division, at the very end.
#
# </details>


# %%
#| student
def window_loss(sums, counts):
    return ...


#| solution
def window_loss(sums, counts):
    return sum(sums) / sum(counts)


#| end
check("02-b", window_loss)

# %% [markdown]
# memlab's loop counts so. `ragged-text` is text of unequal lengths, padded, with labels that are not
# counted. **Does the loss depend on how 8 samples are cut?** `items` are the tokens that count.

# %% tags=["nbval-ignore-output"]
for micro_batch_size in (8, 4, 2):  # change me
    plan = memlab.Plan.for_global_batch(8, micro_batch_size=micro_batch_size, data="ragged-text", steps=1)
    for event in memlab.train(plan):
        if isinstance(event, StepFinished):
            print(
                f"micro-batch {micro_batch_size}, step {event.step + 1}: {event.items:,} items, loss {event.loss:.5f}"
            )

# %% [markdown]
# ## 4. The last, short window
#
# The loop in many tutorials:
#
# ```python
# for i, batch in enumerate(batches):
#     (loss(batch) / K).backward()
#     if (i + 1) % K == 0:
#         optimizer.step()
#         optimizer.zero_grad()
# ```
#
# **How many optimizer steps does an epoch of 7 micro-batches make with K = 4, and what becomes of the
# rest?**

# %%
batches, K = 7, 4  # change me; try 3 and 4 as well
weight = nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([weight], lr=0.1)
for i in range(batches):
    ((weight - 1).square() / K).backward()
    print(f"micro-batch {i + 1}: .grad {weight.grad.item():.2f}", end="")
    if (i + 1) % K == 0:
        optimizer.step()
        optimizer.zero_grad()
    print(f", weight {weight.item():.2f}")

# %% [markdown]
# One step, after micro-batch 4. The gradient of the other three is left in `.grad`: the next epoch adds to it
# (a **leak**), or sets it to zero first (they are **dropped**). With 3 micro-batches and K = 4 this loop never
# trains at all. Nothing fails; the loss just does not fall.
# A complete loop ends the epoch with a short window and divides it by what it holds.
#
# **Exercise 02-c.** Write `windows(batches, K)`: the list of how many micro-batches each optimizer step of
# one epoch takes.
#
# <details><summary>Hint 1</summary>
#
# `windows(7, 4)` has two entries, and they add up to 7.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `range(0, batches, K)` gives where each window starts; `min` helps with the last.
#
# </details>


# %%
#| student
def windows(batches, K):
    return ...


#| solution
def windows(batches, K):
    return [min(K, batches - start) for start in range(0, batches, K)]


#| end
check("02-c", windows)

# %% [markdown]
# memlab does the same. The digits are 1,797 images; with micro-batches of 128 **which window is short, and
# how many samples does it hold?**

# %%
plan = memlab.Plan(model="mlp", micro_batch_size=128, gradient_accumulation_steps=4, steps=5)
for event in memlab.train(plan):
    if isinstance(event, StepFinished):
        print(
            f"epoch {event.epoch + 1}, step {event.step + 1}: {event.micro_steps} micro-batches, "
            f"{event.samples} samples"
        )

# %% [markdown]
# ## 5. Once per window: clipping and the schedule
#
# Clipping shortens a gradient that is too long. **Is clipping each micro-batch's gradient the same as
# clipping their mean?**


# %%
def clipped(vector, limit=1.0):
    return vector * min(1.0, limit / vector.norm().item())


gradients = torch.tensor([[10.0, 0.0], [0.0, 0.1]])  # two micro-batches; change me
each, once = torch.stack([clipped(row) for row in gradients]).mean(0), clipped(gradients.mean(0))
for name, (first, second) in {"each one clipped": each, "the mean clipped": once}.items():
    print(f"{name}: ({first:.2f}, {second:.2f})")

# %% [markdown]
# No: clipping each one also turns the direction. The large batch is clipped once, so accumulate first, then
# clip once per window.
#
# The learning-rate schedule counts *updates*, too. **A warm-up of 25 steps, stepped after every micro-batch
# with K = 4: after how many updates is it over?**

# %%
#| student
warmup_guess = predict("end of the warm-up", None, "updates")
#| solution
warmup_guess = predict("end of the warm-up", 25, "updates")
#| end
warmup_guess

# %%
warmup_steps, K, updates = 25, 4, {}  # change me
for calls in (K, 1):  # calls of scheduler.step() for each update
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / warmup_steps, total_iters=warmup_steps)
    updates[calls] = 0
    while scheduler.get_last_lr()[0] < 0.9999:
        optimizer.step()
        for _ in range(calls):
            scheduler.step()
        updates[calls] += 1

# %%
print(f"full rate, stepped each micro-batch: after {updates[K]} updates; each update: after {updates[1]}")
warmup_guess.against(updates[K])

# %% [markdown]
# **Exercise 02-d.** An epoch has 22 micro-batches, K = 4. How often must `scheduler.step()` be called in
# three epochs?
#
# <details><summary>Hint 1</summary>
#
# As often as the optimizer steps.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Your `windows` knows how many steps one epoch has.
#
# </details>

# %%
#| student
answer = None  # a number
#| solution
answer = 3 * len(windows(22, 4))
#| end
check("02-d", answer)

# %% [markdown]
# ## 6. When it is another function: BatchNorm
#
# Everything so far assumed that a sample's loss does not depend on the other samples in its micro-batch.
# BatchNorm breaks that: it normalises each sample by the mean and variance of the batch it came with.
# **With which of these norms does the first loss change when 16 samples are cut into four times 4?**

# %%
for norm in ("batch", "group", "layer"):
    losses = []
    for micro_batch_size in (16, 4):
        plan = memlab.Plan.for_global_batch(
            16, micro_batch_size=micro_batch_size, model="convnet", norm=norm, steps=1
        )
        losses += [event.loss for event in memlab.train(plan) if isinstance(event, StepFinished)]
    print(f"{norm:>6}: the same loss up to rounding: {abs(losses[0] - losses[1]) < 1e-4}")

# %% [markdown]
# The loop also says so itself, as a notice at the start of the run:

# %%
plan = memlab.Plan(model="convnet", norm="batch", micro_batch_size=4, gradient_accumulation_steps=4, steps=1)
for event in memlab.train(plan):
    if isinstance(event, Notice):
        print(event.message)

# %% [markdown]
# **Exercise 02-e.** Which of these make an accumulated gradient another one than the large batch's, beyond
# rounding and chance?
#
# <details><summary>Hint 1</summary>
#
# Ask of each: does the result for one sample depend on which other samples are in the micro-batch?
#
# </details>
# <details><summary>Hint 2</summary>
#
# A contrastive loss compares each sample with the others of its micro-batch. Dropout draws other masks,
# from the same distribution.
#
# </details>

# %%
#| student
answer = (
    None  # a set of some of "BatchNorm", "GroupNorm", "LayerNorm", "RMSNorm", "dropout", "contrastive loss"
)
#| solution
answer = {"BatchNorm", "contrastive loss"}
#| end
check("02-e", answer)

# %% [markdown]
# ## 7. And the memory
#
# All this for what? The same 8 samples a step, cut smaller and smaller. **Which rows move, and when does
# it stop paying?**

# %%
runs = {}
for micro_batch_size in (8, 4, 2, 1):
    sizes = {"micro_batch_size": micro_batch_size, "sequence_length": 64, "steps": 2}  # change me
    plan = memlab.Plan.for_global_batch(8, **sizes)
    runs[f"{micro_batch_size} x {plan.gradient_accumulation_steps}"] = memlab.measure(plan)
memlab.compare(runs)

# %% [markdown]
# It pays as long as the activations are a large share of the peak. The work per sample is the same in every
# column: smaller micro-batches are slower only as far as they use the device badly.
#
# **Exercise 02-f.** You trained with micro-batch 32, K = 1. To save memory you now train with micro-batch 8,
# K = 4. What do you do with the learning rate?
#
# <details><summary>Hint 1</summary>
#
# What is the global batch size before and after?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Section 1: is the gradient another one?
#
# </details>

# %%
#| student
answer = None  # one of "leave it", "multiply it by 4", "multiply it by 2", "divide it by 4"
#| solution
answer = "leave it"
#| end
check("02-f", answer)

# %% [markdown]
# ## 8. See it move
#
# Run a plan, pin it, then set micro-batch and K so that their product stays the same, and run again: the
# loss curves should lie on each other while the memory does not. Then choose the convnet and its norms.

# %% tags=["nbval-ignore-output"]
bench = memlab.Bench(micro_batch_size=8, gradient_accumulation_steps=2)
bench

# %% [markdown]
# ## Key points
#
# - Accumulated gradients equal the large batch's up to rounding, if every sample's loss depends on that
#   sample alone and each counts with the same weight.
# - Divide by the number of items in the whole window, not by K: token counts and the last window differ.
# - Clip, step and schedule once per window; end an epoch with its short window.
# - AdamW and clipping hide a wrong scale, SGD does not.
# - BatchNorm and contrastive losses couple samples: accumulation then trains another function.
# - The global batch decides the learning rate, not how it is cut.
