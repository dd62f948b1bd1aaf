# %% [markdown]
# # 05 Activation checkpointing
#
# **40 minutes**: 15 to read, 25 to do. Before it: `01_where_the_memory_goes`.
#
# **Goal.** You can choose what to recompute: you know what each policy keeps, what it costs in work, when it
# saves nothing, and what goes wrong without the random state.

# %%
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import memlab
from memlab.course import check, predict

WORK = {"micro_batch_size": 8, "sequence_length": 64, "steps": 2}

# %% [markdown]
# ## 1. Four policies
#
# Backward needs what forward computed. Keep it all, or keep the *input* of a block and compute the block
# again when backward gets there. `gpt-tiny` has six blocks:
#
# | policy | recomputes |
# | --- | --- |
# | `none` | nothing |
# | `selective` | all of a block but its matrix products |
# | `every-3`, `every-2` | every third or second block |
# | `full` | every block |
#
# "Checkpointing saves over half of the memory", one reads. **Which share of the peak does `full` leave here,
# where activations are half of it?**

# %%
#| student
full_guess = predict("full checkpointing", None, "% of the peak without")
#| solution
full_guess = predict("full checkpointing", 50, "% of the peak without")
#| end
full_guess

# %%
policies = ("none", "selective", "every-2", "full")  # change me
runs = {policy: memlab.measure(memlab.Plan(activation_checkpointing=policy, **WORK)) for policy in policies}
memlab.compare(runs)

# %%
full_guess.against(round(100 * runs["full"].peak.total / runs["none"].peak.total))

# %% [markdown]
# The saving is of activations, so it is bounded by their share, and the peak's other rows do not wait: with
# `full` the peak comes late in backward, when nearly all gradients are there.
#
# **Is it still the same training?** The losses of the first two steps, to the last bit:

# %%
for policy, run in runs.items():
    print(f"{policy:>9}: the same losses as without, bit for bit: {run.losses == runs['none'].losses}")

# %% [markdown]
# ## 2. The price, counted
#
# Time depends on the machine; the number of multiplications does not. torch's `FlopCounterMode` counts the
# floating-point operations of matrix products. `blocks` is a stack of small blocks; with
# `recompute=True` each one is checkpointed.

# %%
torch.manual_seed(0)
blocks = [nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(16)]
x = torch.randn(32, 64, requires_grad=True)


def forward(recompute):
    out = x
    for block in blocks:
        out = checkpoint(block, out, use_reentrant=False) if recompute else block(out)
    return out.square().mean()


# %% [markdown]
# **By which factor do the operations of forward and backward together grow when everything is
# recomputed?**

# %%
#| student
work_guess = predict("work", None, "x the work without")
#| solution
work_guess = predict("work", 2, "x the work without")
#| end
work_guess

# %%
operations = {}
for recompute in (False, True):
    with FlopCounterMode(display=False) as counter:
        forward(recompute).backward()
    operations[recompute] = counter.get_total_flops()
    print(f"recompute={recompute}: {operations[recompute]:,} operations")

# %%
work_guess.against(round(operations[True] / operations[False], 3))

# %% [markdown]
# For $Y = XW$ forward is one product. **Why does one forward more cost this factor and not 2?**
#
# **Exercise 05-a.** Now only every second block is recomputed. By which factor does the work of a step grow
# over the work without checkpointing?
#
# <details><summary>Hint 1</summary>
#
# Backward computes two products for that one: $\partial X$ and $\partial W$.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Three products a block without. How many more for the half of the blocks, and how many on average?
#
# </details>

# %%
#| student
answer = None  # a number
#| solution
answer = (3 + 0.5) / 3
#| end
check("05-a", answer)

# %% [markdown]
# And in **time**? That depends on the machine: what is not a product (norms, the loss, the optimizer, the
# loop) is not slowed by the same factor. A widely read article says "about 30 %". **What do you get?**

# %% tags=["nbval-ignore-output"]
for policy in ("none", "full"):  # change me
    run = memlab.measure(memlab.Plan(activation_checkpointing=policy, **{**WORK, "steps": 4}))
    print(f"{policy:>9}: {run.samples_per_second:.1f} samples per second on {run.environment['device']}")

# %% [markdown]
# ## 3. When it saves nothing
#
# A checkpointed segment keeps its input. So it saves only what lies *between* its input and its output.
# `peak` meters one step of a stack of eight pairs, Linear and GELU, that is checkpointed in segments of so
# many modules (0: not at all).


# %%
def peak(segment, width=256, batch=1024):
    modules = [module for _ in range(8) for module in (nn.Linear(width, width), nn.GELU())]
    model = nn.Sequential(*modules)
    parts = [model[i : i + segment] for i in range(0, 16, segment)] if segment else []
    out = torch.randn(batch, width)
    with memlab.Meter(model) as meter:
        for part in parts or [model]:
            out = checkpoint(part, out, use_reentrant=False) if segment else part(out)
        out.square().mean().backward()
    return meter.trace.peak


# %% [markdown]
# **Which segment is best: 1, 2, 4, 8 or all 16 modules?** Guess, then look.

# %%
for segment in (0, 1, 2, 4, 8, 16):
    found = peak(segment)
    print(
        f"segments of {segment:>2} modules: peak {found.total:>10,} B, activations {found['activations']:>10,} B"
    )

# %% [markdown]
# Too short, and the inputs that are kept are all that there was to save. Too long, and everything inside one
# segment is alive at once while it is recomputed. The best is in between.
#
# **Exercise 05-b.** Which segment saves nothing when it is checkpointed?
#
# <details><summary>Hint 1</summary>
#
# What does a GELU keep for backward? What does a Linear keep?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Both keep their input.
#
# </details>

# %%
#| student
answer = None  # one of "one GELU", "one Linear + GELU", "four times Linear + GELU"
#| solution
answer = "one GELU"
#| end
check("05-b", answer)

# %% [markdown]
# **Exercise 05-c.** A stack of 64 equal blocks is cut into segments of $n$ blocks. At the peak, the inputs of
# $64 / n$ segments are alive, and the insides of $n$ blocks; take each as one unit. Which $n$ makes
# the sum smallest?
#
# <details><summary>Hint 1</summary>
#
# $n = 1$ gives $64 + 1$, and $n = 64$ gives $1 + 64$.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `min(range(1, 65), key=lambda n: ...)`
#
# </details>

# %%
#| student
answer = None  # a number
#| solution
answer = min(range(1, 65), key=lambda n: 64 / n + n)
#| end
check("05-c", answer)

# %% [markdown]
# ## 4. Dropout, computed twice
#
# Dropout draws a random mask. When the block is computed again it must draw the *same* mask: the
# random state is part of what must be kept. **What happens when it is not?**


# %%
def loss_and_gradient(**options):
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.5), nn.Linear(64, 64))
    data = torch.randn(32, 64)
    out = checkpoint(block, data, use_reentrant=False, **options) if options else block(data)
    loss = out.square().mean()
    loss.backward()
    return loss, block[0].weight.grad


# %%
loss, gradient = loss_and_gradient()  # not checkpointed
for preserve in (True, False):
    other_loss, other_gradient = loss_and_gradient(preserve_rng_state=preserve)
    same = torch.equal(loss, other_loss), torch.equal(gradient, other_gradient)
    print(f"preserve_rng_state={preserve}: the same loss {same[0]}, the same gradient {same[1]}")

# %% [markdown]
# **Exercise 05-d.** Somebody trains with checkpointing and dropout and turns the keeping of the random state
# off, because it is faster. What happens?
#
# <details><summary>Hint 1</summary>
#
# The loss of a step is known before backward begins.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Which pass uses the second mask?
#
# </details>

# %%
#| student
answer = None  # "the loss is wrong", "the loss is right and the gradients are wrong", "both are right", "both are wrong"
#| solution
answer = "the loss is right and the gradients are wrong"
#| end
check("05-d", answer)

# %% [markdown]
# That is a fault that no loss curve shows at once. memlab keeps the random state: with dropout, the losses of
# the second step, which depend on the first step's gradients, are the same with and without checkpointing.

# %%
small = {"dropout": 0.2, "micro_batch_size": 2, "sequence_length": 32, "steps": 3}
without, recomputed = (
    memlab.measure(memlab.Plan(activation_checkpointing=policy, **small)).losses
    for policy in ("none", "full")
)  # change me
print("the same losses, bit for bit:", without == recomputed)

# %% [markdown]
# ## 5. As little as needed
#
# **Exercise 05-e.** The budget is 85 % of the peak that `WORK` has without checkpointing. Hand in the run of
# the plan that fits with the least work: change `activation_checkpointing` only.
#
# <details><summary>Hint 1</summary>
#
# The first table has the numbers, but for one policy.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `every-2` computes three blocks twice, `every-3` two.
#
# </details>

# %%
#| student
answer = None  # the Run of your plan
#| solution
answer = runs["every-2"]
#| end
check("05-e", answer)

# %% [markdown]
# ## 6. See it move
#
# Set the policy, press **Run**, and watch what becomes of the hills: with `full` backward is a row of small
# teeth, one for each block that is computed again. Does the step take longer, and by how much?

# %% tags=["nbval-ignore-output"]
bench = memlab.Bench(micro_batch_size=8, activation_checkpointing="full")
bench

# %% [markdown]
# ## Key points
#
# - Checkpointing keeps a segment's input and recomputes the rest. It saves activations only, so the share
#   that it saves of the peak is bounded by theirs.
# - Its price is one more forward, a third of forward and backward together at most, less where less is
#   recomputed. Whether that is 30 % of *time* depends on the machine.
# - A segment must hold more than its input, or it saves nothing; too long a segment is alive at once.
# - Without the random state, dropout gives right losses and wrong gradients.
# - Use the non-reentrant form (`use_reentrant=False`): the other one gives no gradients when no input needs one.
