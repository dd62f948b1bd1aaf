"""The text of every PlanError that a Plan raises: value, rule and way out."""

from typing import Any

import pytest

from memlab.plan import Plan, PlanError

MODEL_NAMES = (
    "'mlp', 'convnet', 'gpt-tiny', 'gpt-small', 'gpt2', 'gpt2-medium', 'gpt2-large', 'gpt2-xl', 'bert-base', "
    "'vit-b/16', 'resnet50', 'llama-7b', 'llama-3-8b', 'llama-2-13b', 'llama-2-70b', 'mistral-7b'"
)
IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    (dict(micro_batch_size=0), "micro_batch_size=0 must be at least 1."),
    (dict(micro_batch_size=2.0), "micro_batch_size=2.0 must be a whole number, 1 or more."),
    (dict(micro_batch_size=True), "micro_batch_size=True must be a whole number, 1 or more."),
    (dict(gradient_accumulation_steps=-1), "gradient_accumulation_steps=-1 must be at least 1."),
    (dict(world_size=0), "world_size=0 must be at least 1."),
    (dict(sequence_length=0), "sequence_length=0 must be at least 1."),
    (dict(sequence_length="128"), "sequence_length='128' must be a whole number, 1 or more."),
    (dict(loss_scale_growth_interval=0), "loss_scale_growth_interval=0 must be at least 1."),
    (dict(lora_rank=-1), "lora_rank=-1 must be at least 0."),
    (dict(warmup_steps=-1), "warmup_steps=-1 must be at least 0."),
    (dict(steps=0), "steps=0 must be at least 1."),
    (dict(seed=-1), "seed=-1 must be at least 0."),
    (dict(seed=None), "seed=None must be a whole number, 0 or more."),
    (
        dict(precision="fp8"),
        "precision='fp8' must be one of 'fp32', 'bf16-mixed', 'fp16-mixed', 'bf16-true'.",
    ),
    (dict(optimizer="adam"), "optimizer='adam' must be one of 'sgd', 'adamw'."),
    (dict(optimizer=None), "optimizer=None must be one of 'sgd', 'adamw'."),
    (dict(schedule="step"), "schedule='step' must be one of 'constant', 'linear', 'cosine'."),
    (
        dict(zero_grad=True),
        "zero_grad=True must be one of 'after_step', 'before_forward', 'before_backward', 'in_place'.",
    ),
    (
        dict(batch_norm_statistics="off"),
        "batch_norm_statistics='off' must be one of 'per-micro-batch', 'frozen', 'accumulated'.",
    ),
    (
        dict(gradient_precision="fp16"),
        "gradient_precision='fp16' must be one of 'bf16', 'fp32', 'bf16+fp32'.",
    ),
    (
        dict(optimizer_state_precision="int8"),
        "optimizer_state_precision='int8' must be one of 'bf16', 'fp32'.",
    ),
    (dict(master_weights=1), "master_weights=1 must be True or False."),
    (dict(foreach="yes"), "foreach='yes' must be True or False or None."),
    (dict(fused=0), "fused=0 must be True or False or None."),
    (dict(learning_rate=0), "learning_rate=0 must be a number above 0."),
    (dict(learning_rate=float("nan")), "learning_rate=nan must be a number above 0."),
    (
        dict(learning_rate=1e39),
        "learning_rate=1e+39 must be at most 1e+37: torch computes with it in FP32.",
    ),
    (
        dict(learning_rate=10**400),
        "learning_rate=100000000000000000...0000000000000000000 must be at most 1e+37: torch computes with it in FP32.",
    ),
    (
        dict(clip_norm=10**400),
        "clip_norm=100000000000000000...0000000000000000000 must be at most 3.40282e+38: torch computes with it in FP32.",
    ),
    (
        dict(initial_loss_scale=1e39),
        "initial_loss_scale=1e+39 must be at most 3.40282e+38: torch computes with it in FP32.",
    ),
    (dict(learning_rate=float("inf")), "learning_rate=inf must be a number above 0."),
    (dict(learning_rate="1e-3"), "learning_rate='1e-3' must be a number above 0."),
    (dict(dropout=1.0), "dropout=1.0 must be a number from 0 up to, not including, 1."),
    (dict(dropout=-0.1), "dropout=-0.1 must be a number from 0 up to, not including, 1."),
    (dict(momentum=1, optimizer="sgd"), "momentum=1 must be a number from 0 up to, not including, 1."),
    (dict(initial_loss_scale=0), "initial_loss_scale=0 must be a number above 0."),
    (dict(clip_norm=0.0), "clip_norm=0.0 must be a number above 0, or None for no clipping."),
    (dict(clip_norm=float("inf")), "clip_norm=inf must be a number above 0, or None for no clipping."),
    (
        dict(model="gpt-huge"),
        f"model='gpt-huge' is not known; choose one of {MODEL_NAMES}, 'custom'.",
    ),
    (
        dict(model=None),
        f"model=None is not known; choose one of {MODEL_NAMES}, 'custom'.",
    ),
    (
        dict(model=["gpt-tiny"]),
        f"model=['gpt-tiny'] is not known; choose one of {MODEL_NAMES}, 'custom'.",
    ),
    (
        dict(model="custom", data="text"),
        "data='text' does not go with model='custom': the Workload brings its data; leave data out.",
    ),
    (
        dict(model="custom", norm="batchnorm"),
        "norm='batchnorm' must be one of 'none', 'batch', 'group', 'layer', 'rms'.",
    ),
    (dict(model="mlp", data="text"), "data='text' does not go with model='mlp'; choose one of 'digits'."),
    (
        dict(data="digits"),
        "data='digits' does not go with model='gpt-tiny'; choose one of 'text', 'ragged-text', 'file:PATH'.",
    ),
    (
        dict(data="file:"),
        "data='file:' does not go with model='gpt-tiny'; choose one of 'text', 'ragged-text', 'file:PATH'.",
    ),
    (
        dict(data=5),
        "data=5 does not go with model='gpt-tiny'; choose one of 'text', 'ragged-text', 'file:PATH'.",
    ),
    (dict(norm="batch"), "norm='batch' does not go with model='gpt-tiny'; choose one of 'layer', 'rms'."),
    (
        dict(model="convnet", norm="rms"),
        "norm='rms' does not go with model='convnet'; choose one of 'batch', 'group', 'layer', 'none'.",
    ),
    (
        dict(model="mlp", sequence_length=8),
        "sequence_length=8 does not go with model='mlp', which reads no text; leave it out.",
    ),
    (
        dict(model="convnet", lora_rank=4),
        "lora_rank=4 needs attention or MLP matrices of a transformer; model='convnet' has none: set it to 0.",
    ),
    (
        dict(model="resnet50", lora_rank=4),
        "lora_rank=4 needs attention or MLP matrices of a transformer; model='resnet50' has none: set it to 0.",
    ),
    (
        dict(model="gpt2-xl", sequence_length=1025),
        "sequence_length=1025 is longer than model='gpt2-xl' has positions for: choose 1024 or less.",
    ),
    (
        dict(model="bert-base", sequence_length=1024),
        "sequence_length=1024 is longer than model='bert-base' has positions for: choose 512 or less.",
    ),
    (
        dict(model="bert-base", data="text"),
        "data='text' does not go with model='bert-base'; choose one of 'text-pairs'.",
    ),
    (
        dict(model="llama-7b", norm="layer"),
        "norm='layer' does not go with model='llama-7b'; choose one of 'rms'.",
    ),
    (
        dict(activation_checkpointing="every-1"),
        "activation_checkpointing='every-1' must be 'none', 'full', 'selective', or 'every-N' with N of 2 or more ('full' is every block).",
    ),
    (
        dict(activation_checkpointing=True),
        "activation_checkpointing=True must be 'none', 'full', 'selective', or 'every-N' with N of 2 or more ('full' is every block).",
    ),
    (
        dict(master_weights=True),
        "master_weights=True needs precision='bf16-true': with 'fp32' weights, gradients and optimizer state are FP32 already.",
    ),
    (
        dict(gradient_precision="fp32"),
        "gradient_precision='fp32' needs precision='bf16-true': with 'fp32' weights, gradients and optimizer state are FP32 already.",
    ),
    (
        dict(precision="bf16-mixed", optimizer_state_precision="bf16"),
        "optimizer_state_precision='bf16' needs precision='bf16-true': with 'bf16-mixed' weights, gradients and optimizer state are FP32 already.",
    ),
    (
        dict(precision="bf16-true", master_weights=True, optimizer_state_precision="bf16"),
        "optimizer_state_precision='bf16' does not go with master_weights=True: the state follows the FP32 weights; leave it out.",
    ),
    (dict(foreach=True, fused=True), "foreach=True and fused=True exclude each other: choose one."),
    (dict(momentum=0.9), "momentum=0.9 needs optimizer='sgd'; 'adamw' has moments of its own: set it to 0."),
    (dict(batch_norm_statistics="frozen"), "batch_norm_statistics='frozen' needs norm='batch', not 'layer'."),
    (
        dict(model="mlp", norm="batch", micro_batch_size=1),
        "micro_batch_size=1 does not go with norm='batch' in model='mlp': one sample has no variance; set it to 2 or more, or choose norm='group' or norm='layer'.",
    ),
    (dict(device="gpu"), "device='gpu' must be 'auto', 'cpu', 'cuda' or 'cuda:N' with N from 0 to 127."),
    (
        dict(device="cuda:99999999999999999999"),
        "device='cuda:99999999999999999999' must be 'auto', 'cpu', 'cuda' or 'cuda:N' with N from 0 to 127.",
    ),
    (dict(device=0), "device=0 must be 'auto', 'cpu', 'cuda' or 'cuda:N' with N from 0 to 127."),
]


@pytest.mark.parametrize(("fields", "sentence"), IMPOSSIBLE, ids=[str(fields) for fields, _ in IMPOSSIBLE])
def test_an_impossible_plan_names_value_rule_and_way_out(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlanError) as caught:
        Plan(**fields)

    assert str(caught.value) == sentence
