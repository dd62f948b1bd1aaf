# %% [markdown]
# # 04 Mixed precision
#
# **50 minutes**: 20 to read, 30 to do. Before it: `01_where_the_memory_goes`.
#
# **Goal.** You know what 16 bits can hold and what they lose, why FP16 needs a loss scale and BF16 does not,
# where autocast uses 16 bits and where not, and when it saves memory.

# %%
import torch
from matplotlib import pyplot
from torch import nn

import memlab
from memlab.course import check, predict
from memlab.events import StepFinished
from memlab.workload import workload_for

# %% [markdown]
# ## 1. Two ways to spend 16 bits
#
# | format | exponent bits | mantissa bits |
# | --- | --- | --- |
# | FP32 | 8 | 23 |
# | FP16 | 5 | 10 |
# | BF16 | 8 | 7 |
#
# The exponent decides how far the numbers reach, the mantissa how close together they lie. **Which of the
# two 16-bit formats can hold 100,000? Which can tell 1.003 from 1?** Change the numbers.

# %%
for number in (100_000.0, 1.003, 1e-10):  # change me
    stored = [torch.tensor(number).to(dtype).item() for dtype in (torch.float16, torch.bfloat16)]
    print(f"{number:>12g}  FP16 {stored[0]:<12.6g}  BF16 {stored[1]:.6g}")

# %%
for dtype in (torch.float16, torch.bfloat16, torch.float32):
    info = torch.finfo(dtype)
    print(
        f"{dtype!s:>14}: largest {info.max:.5g}, smallest normal {info.smallest_normal:.3g}, 1 + {info.eps:.3g}"
    )

# %% [markdown]
# **Exercise 04-a.** Below its smallest normal number FP16 goes on with fewer bits ("subnormal"). The smallest
# positive number that it holds is $2^n$. Find $n$.
#
# <details><summary>Hint 1</summary>
#
# `torch.tensor(2.0**-20).half().item()` is not zero.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Ten mantissa bits below the smallest normal number, $2^{-14}$.
#
# </details>

# %%
#| student
answer = None  # a whole number
#| solution
answer = max(n for n in range(-40, 0) if torch.tensor(2.0 ** (n - 1)).half() == 0)
#| end
check("04-a", answer)

# %% [markdown]
# ## 2. Gradients that vanish
#
# Real gradients get small. Here a small model learns 64 digits until it is sure of them; then the gradient
# of the loss with respect to its outputs is looked at. **What share of these numbers would be zero in FP16?**

# %%
plan = memlab.Plan(model="mlp", learning_rate=3e-3)
workload = workload_for(plan)
torch.manual_seed(0)
model = workload.build_model(plan)
optimizer = workload.build_optimizer(model.parameters(), plan)
images, labels = batch = workload.batch(range(64))

# %%
for _ in range(30):  # change me: after 5 steps the model is less sure
    optimizer.zero_grad()
    (workload.loss_sum(model, batch) / 64).backward()
    optimizer.step()

# %%
#| student
lost_guess = predict("lost gradients", None, "% of the numbers")
#| solution
lost_guess = predict("lost gradients", 5, "% of the numbers")
#| end
lost_guess

# %% tags=["nbval-ignore-output"]
outputs = model(images)
loss = nn.functional.cross_entropy(outputs, labels)
(gradients,) = torch.autograd.grad(loss, outputs)
for scale in (1.0, 2.0**10, 2.0**16):  # change me
    lost = (gradients * scale).half() == 0
    print(f"scale {scale:>7g}: {lost.float().mean():.0%} of the gradients are zero in FP16")

# %% tags=["nbval-ignore-output"]
lost_guess.against(round(100 * (gradients.half() == 0).float().mean().item()))

# %% [markdown]
# Multiply the *loss* by a scale, and every gradient is multiplied by it (the chain rule is linear). In the
# picture the scale moves the whole hill to the right, into the range that FP16 holds (shaded). **How far
# may it move?**

# %% tags=["nbval-ignore-output"]
scale = 2.0**16  # change me
for factor, name in ((1.0, "as they are"), (scale, f"times {scale:g}")):
    pyplot.hist(
        (gradients * factor).abs().clamp_min(2.0**-50).log2().flatten(), bins=60, alpha=0.6, label=name
    )
pyplot.axvspan(-24, 16, color="gray", alpha=0.2, label="FP16 holds")
pyplot.xlabel("log2 of the gradient")
pyplot.ylabel("how many")
pyplot.legend()
pyplot.show()

# %% [markdown]
# **Exercise 04-b.** A gradient is 1e-10. Find the smallest power of two that, as loss scale, keeps it from
# becoming zero in FP16.
#
# <details><summary>Hint 1</summary>
#
# What is closer to the smallest number than to zero is rounded to the smallest number.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Try: `(torch.tensor(1e-10) * scale).half()`.
#
# </details>

# %%
#| student
answer = None  # a whole number
#| solution
answer = next(2**n for n in range(40) if (torch.tensor(1e-10) * 2**n).half() > 0)
#| end
check("04-b", answer)

# %% [markdown]
# ## 3. Too much of it: overflow
#
# 65,504 is the largest FP16 number; 65,520 is already infinite. With too large a scale some gradient
# overflows. The scaler then **skips the step**, halves the scale and goes on; after some good steps it
# doubles it again. **Starting from 2**40 and doubling after every 3 good steps, what will you see?**

# %%
plan = memlab.Plan(
    model="mlp",
    precision="fp16-mixed",
    initial_loss_scale=2.0**40,  # change me
    loss_scale_growth_interval=3,
    steps=40,
)
steps = [event for event in memlab.train(plan) if isinstance(event, StepFinished)]

# %% tags=["nbval-ignore-output"]
for event in steps:
    print(
        f"step {event.step + 1:>2}: scale 2**{torch.tensor(event.loss_scale).log2():.0f}",
        "skipped" * event.skipped,
    )

# %%
first = next(event for event in steps if not event.skipped)
before, after = steps[: first.step], steps[first.step :]
print("every step before the first good one was skipped:", all(event.skipped for event in before))
print("each halved the scale:", all(event.loss_scale == 2.0 ** (40 - event.step) for event in before))
print("later it was doubled again:", max(event.loss_scale for event in after) > first.loss_scale)

# %% [markdown]
# A skipped step changes no weight, so the learning-rate schedule does not move either. The scale ends up
# hovering below what overflows. A skip now and then is normal; a scale that only falls is a model that
# diverges.
#
# ## 4. Clip the true gradient
#
# With a scale of 65,536 every gradient is 65,536 times too long until it is unscaled. **The true gradient has
# norm 1 and the limit is 1. How far does SGD with learning rate 1 move if you clip first?**

# %%
#| student
move_guess = predict("move when clipped first", None, "")
#| solution
move_guess = predict("move when clipped first", 1, "")
#| end
move_guess


# %%
def clipped(vector, limit=1.0):
    return vector * min(1.0, limit / vector.norm().item())


scale = 65536.0  # change me
scaled = torch.tensor([0.6, 0.8]) * scale
right, wrong = clipped(scaled / scale), clipped(scaled) / scale
print(f"unscaled, then clipped: {right.norm():.3g}; clipped, then unscaled: {wrong.norm():.3g}")

# %%
move_guess.against(float(f"{wrong.norm():.3g}"))

# %% [markdown]
# **Exercise 04-c.** With accumulation: after the last backward of a window, in which order?
#
# <details><summary>Hint 1</summary>
#
# The limit is a number for true gradients.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Unscaling in the middle of a window would add gradients of two scales: once, at the end.
#
# </details>

# %%
#| student
answer = None  # for example "step, clip, unscale"
#| solution
answer = "unscale, clip, step"
#| end
check("04-c", answer)

# %% [markdown]
# ## 5. BF16 needs no scale, and pays
#
# BF16 reaches as far as FP32. Its price is the mantissa: between 1 and 2 it knows 128 numbers. **A BF16
# weight of 1 gets ten AdamW steps at learning rate 0.001. Where does it end?**

# %%
#| student
weight_guess = predict("BF16 weight after ten steps", None, "")
#| solution
weight_guess = predict("BF16 weight after ten steps", 0.99, "")
#| end
weight_guess

# %%
learning_rate = 1e-3  # change me: from which rate on does BF16 move?
for dtype in (torch.float32, torch.bfloat16):
    weight = nn.Parameter(torch.ones(1, dtype=dtype))
    adamw = torch.optim.AdamW([weight], lr=learning_rate, weight_decay=0.0)
    for _ in range(10):
        weight.grad = torch.ones_like(weight)
        adamw.step()
    print(f"{dtype!s:>14}: {weight.item():.4f}")

# %%
weight_guess.against(weight.item())

# %% [markdown]
# Each single step is smaller than half the distance to the next BF16 number, and is rounded away: ten times.
# That is why weights are kept in FP32, either as the weights themselves (autocast) or as a **master copy**
# beside BF16 weights.
#
# `bf16-true` trains with BF16 weights. Its options keep some things in FP32, and people argue about the bytes
# for each weight. **Which bytes do you expect for each line?**

# %%
variants = {
    "all in BF16": {},
    "FP32 averages": {"optimizer_state_precision": "fp32"},
    "FP32 gradients": {"gradient_precision": "fp32"},
}  # change me: add "master_weights": True
for name, options in variants.items():
    run = memlab.measure(memlab.Plan(model="mlp", precision="bf16-true", steps=2, **options))
    instant = run.peaks_by_phase["optimizer"]
    kept = sum(instant[row] for row in ("parameters", "gradients", "optimizer_state"))
    print(f"{name:>14}: {kept / (instant['parameters'] / 2):.1f} bytes for each weight")

# %% [markdown]
# **Exercise 04-d.** How many bytes for each weight does `bf16-true` with `master_weights=True` and AdamW take?
# The averages then follow the master copy.
#
# <details><summary>Hint 1</summary>
#
# The BF16 weight and its BF16 gradient are 2 bytes each.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Add the line to `variants` above; where is the master copy counted?
#
# </details>

# %%
#| student
answer = None  # a number of bytes
#| solution
answer = 2 + 2 + 4 + 4 + 4
#| end
check("04-d", answer)

# %% [markdown]
# ## 6. What autocast stores
#
# "Mixed precision halves weights and activations", and "the FP16 gradients are unscaled to FP32". **Look: what
# is the type of the weight, of its gradient, and of what flows backward inside?**

# %%
half = torch.bfloat16  # change me: torch.float16
layer = nn.Linear(8, 8)
with torch.autocast("cpu", half):
    hidden = layer(torch.randn(4, 8))
    loss = nn.functional.mse_loss(hidden, torch.zeros(4, 8))
hidden.register_hook(lambda gradient: print(f"inside backward: {gradient.dtype}"))
loss.backward()
print(f"weight {layer.weight.dtype}, its gradient {layer.weight.grad.dtype}")
print(f"output of the product {hidden.dtype}, loss {loss.dtype}")

# %% [markdown]
# FP16 is no different. **Count the gradients' bytes of a whole model: 4 for each weight, or 2?**

# %%
for precision in ("fp32", "bf16-mixed", "fp16-mixed"):  # change me
    run = memlab.measure(memlab.Plan(model="mlp", precision=precision, steps=1))
    gradients, weights = (run.peaks_by_phase["optimizer"][row] for row in ("gradients", "parameters"))
    print(f"{precision:>10}: weights {weights:,} B, their gradients {gradients:,} B")

# %% [markdown]
# So there is no FP16 gradient that is "unscaled to FP32": the scaler divides FP32 gradients by the scale. 16-bit
# gradients exist inside the backward pass alone, and that is where they vanish without a scale.
#
# **Exercise 04-e.** Which of these are 16-bit under autocast?
#
# <details><summary>Hint 1</summary>
#
# The cell above prints all but one. (Which other operations autocast runs in FP32 depends on the device: on CUDA
# softmax and normalisations are among them.)
#
# </details>
# <details><summary>Hint 2</summary>
#
# The optimizer keeps its averages in the type of the weight.
#
# </details>

# %%
#| student
answer = None  # a set of some of "weights", "weight gradients", "optimizer state", "outputs of matrix products", "loss"
#| solution
answer = {"outputs of matrix products"}
#| end
check("04-e", answer)

# %% [markdown]
# ## 7. When it saves memory
#
# Autocast adds 16-bit copies of the weights and halves many activations. `step_peaks` meters one SGD step of a
# stack of six Linear and GELU, by the Meter that works around anybody's code.


# %%
def step_peaks(width, batch, autocast):
    model = nn.Sequential(*[module for _ in range(6) for module in (nn.Linear(width, width), nn.GELU())])
    optimizer, data = torch.optim.SGD(model.parameters()), torch.randn(batch, width)
    with memlab.Meter(model, optimizer) as meter:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = model(data).pow(2).mean()
        loss.backward()
        optimizer.step()
    return meter.peaks_by_phase


# %% [markdown]
# **A wide model with 8 samples, and a narrow one with 4,096: whose peak does autocast lower?**

# %%
for width, batch in ((1024, 8), (256, 4096)):  # change me
    for autocast in (False, True):
        peaks = step_peaks(width, batch, autocast)
        copies = peaks["forward"]["low_precision_copies"]
        ends = f"forward {peaks['forward'].total:>11,}  backward {peaks['backward'].total:>11,}"
        print(f"width {width:>4} batch {batch:>4} autocast {autocast!s:>5}: {ends}  copies {copies:>11,} B")

# %% [markdown]
# With few samples the copies outweigh what the activations save, and the peak rises. With many samples it
# falls. "65 % of the baseline" is one point between.
#
# And speed? Half precision is two to three times as fast on Tensor Cores *when the matrices are large*. On a
# CPU without such units it is often slower. Measure on your device:

# %% tags=["nbval-ignore-output"]
for precision in ("fp32", "bf16-mixed"):
    run = memlab.measure(memlab.Plan(micro_batch_size=2, sequence_length=32, precision=precision, steps=3))
    print(f"{precision:>10}: {run.samples_per_second:.1f} samples per second on {run.environment['device']}")

# %% [markdown]
# ## 8. See it move
#
# This bench runs `fp16-mixed` and shows the loss scale beside the memory. Then choose `bf16-mixed`: the
# scale is gone.

# %% tags=["nbval-ignore-output"]
bench = memlab.Bench(model="mlp", precision="fp16-mixed", steps=200)
bench

# %% [markdown]
# ## Key points
#
# - FP16 has fine steps and a short reach (2**-24 to 65,504), BF16 a long reach and coarse steps.
# - FP16 needs a loss scale: too small and gradients vanish, too large and the step is skipped. BF16 needs none.
# - Unscale once per window, then clip, then step. A skipped step moves no schedule.
# - Small updates vanish in BF16 weights: keep FP32 weights or a master copy.
# - Autocast keeps weights, their gradients and the optimizer in FP32; it adds 16-bit copies and shrinks
#   many activations. It saves memory where activations dominate, and costs some where weights do.
