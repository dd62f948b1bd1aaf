"""Autocast on our device: CUDA's lists, and its cache of casted weights.

The lists are those of ATen/autocast_mode.h, which torch installs with its headers.
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from memlab.predicting.device_name import NAME

LOWER = (
    "_convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input "
    "conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm "
    "baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell "
    "rnn_tanh_cell rnn_relu_cell _scaled_dot_product_flash_attention scaled_dot_product_attention"
).split()
"""Computed in FP16 or BF16."""
FP32 = (
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar "
    "pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim "
    "nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d "
    "hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss "
    "multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss "
    "binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d "
    "_upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d "
    "_upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d "
    "upsample_bicubic2d _upsample_bicubic2d_aa"
).split()
"""Computed in FP32."""
FP32_RESULT = (
    "prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm "
    "linalg_matrix_norm.str_ord sum sum.dim_IntList"
).split()
"""Asked for an FP32 result unless another is asked for."""
PROMOTE = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add".split()
"""Computed in the widest type among the arguments."""

Cast = Callable[[Any, Any, Any], Any]
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
_casts: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}


def register(library: torch.library.Library, all_others: torch.library.Library) -> None:
    """Register the lists for our device; operators on none of them pass."""
    all_others.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    lists = ((LOWER, _in_lower), (FP32, _in_fp32), (FP32_RESULT, _with_fp32_result), (PROMOTE, _in_widest))
    for names, rule in lists:
        for name in names:
            library.impl(name, _kernel(_operator(name), rule), "AutocastPrivateUse1")


def _operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _kernel(operator: Any, rule: Cast) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            return rule(operator, args, kwargs)

    return kernel


def _in_lower(operator: Any, args: Any, kwargs: Any) -> Any:
    return _called(operator, args, kwargs, torch.get_autocast_dtype(NAME))


def _in_fp32(operator: Any, args: Any, kwargs: Any) -> Any:
    return _called(operator, args, kwargs, torch.float32)


def _with_fp32_result(operator: Any, args: Any, kwargs: Any) -> Any:
    if not _eligible(args[0]):
        return operator(*args, **kwargs)
    place = [argument.name for argument in operator._schema.arguments].index("dtype")
    if len(args) > place:
        if args[place] is None:
            args = (*args[:place], torch.float32, *args[place + 1 :])
    elif kwargs.get("dtype") is None:
        kwargs = {**kwargs, "dtype": torch.float32}
    return operator(*args, **kwargs)


def _in_widest(operator: Any, args: Any, kwargs: Any) -> Any:
    types = {tensor.dtype for tensor in _tensors([args, list(kwargs.values())]) if _eligible(tensor)}
    widest = torch.float32 if torch.float32 in types else torch.get_autocast_dtype(NAME)
    return _called(operator, args, kwargs, widest)


def _called(operator: Any, args: Any, kwargs: Any, dtype: torch.dtype) -> Any:
    casted = {name: _cast(value, dtype) for name, value in kwargs.items()}
    return operator(*(_cast(value, dtype) for value in args), **casted)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(item, dtype) for item in value)
    if not _eligible(value) or value.dtype == dtype:
        return value
    if dtype != torch.get_autocast_dtype(NAME) or not _is_weight(value):
        return value.to(dtype)
    known = _casts.get(id(value))
    if known is None or known[0]() is not value:
        known = _casts[id(value)] = (weakref.ref(value), value.to(dtype))
    return known[1]


def _is_weight(tensor: Tensor) -> bool:
    return (
        torch.is_autocast_cache_enabled()
        and tensor.requires_grad
        and tensor.is_leaf
        and not tensor._is_view()
        and tensor.dtype == torch.float32
    )


def _eligible(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and value.is_floating_point()
        and value.dtype != torch.float64
        and value.device.type == NAME
    )


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


@contextmanager
def weight_cache() -> Iterator[None]:
    """Drop the casted weights where torch drops its own: as the outermost autocast ends."""
    clear = torch.clear_autocast_cache

    def clear_both() -> None:
        _casts.clear()
        clear()

    torch.clear_autocast_cache = clear_both
    try:
        yield
    finally:
        torch.clear_autocast_cache = clear
        _casts.clear()
