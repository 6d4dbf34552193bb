"""The names that DeepSpeed knows in its configuration, and sentences about those that it does not.

Asked of DeepSpeed 0.19.8 (``deepspeed/runtime/config.py``): at the top level it ignores what it does not know, in some
sections it refuses it. ``tests/cluster/deepspeed/test_keys.py`` asks the installed one again.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

TOP = frozenset(
    (
        *("activation_checkpointing", "aio", "autotuning", "bf16", "bfloat16", "checkpoint", "comet", "comms_logger"),
        *("communication_data_type", "compile", "csv_monitor", "data_efficiency", "data_types", "dataloader_drop_last"),
        *(
            "datastates_ckpt",
            "disable_allgather",
            "disable_python_gc",
            "dump_state",
            "expert_parallel",
            "flops_profiler",
        ),
        *("fp16", "gradient_accumulation_steps", "gradient_allreduce_op", "gradient_clipping"),
        *("gradient_predivide_factor", "hybrid_engine", "log_level", "managed_gradient_accumulation"),
        *("memory_breakdown", "optimizer", "pipeline", "prescale_gradients", "scheduler"),
        *("seq_parallel_communication_data_type", "sequence_parallel_size", "steps_per_print", "tensor_parallel"),
        *("tensorboard", "timers", "torch_autocast", "train_batch_size", "train_micro_batch_size_per_gpu"),
        *("use_data_before_expert_parallelism", "vocabulary_size", "wall_clock_breakdown", "wandb"),
        *("weight_quantization", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "zero_optimization"),
    )
)
REMOVED = frozenset(  # what older versions knew, and this one refuses
    (
        *("amp", "compression_training", "curriculum_learning", "eigenvalue", "elasticity", "graph_harvesting"),
        *("nebula", "progressive_layer_drop", "quantize_training", "sparse_attention", "sparse_gradients"),
    )
)
SECTIONS = {
    "zero_optimization": frozenset(
        (
            *("stage", "contiguous_gradients", "reduce_scatter", "reduce_bucket_size", "allgather_partitions"),
            *("use_multi_rank_bucket_allreduce", "allgather_bucket_size", "overlap_comm", "compute_grad_norm"),
            *("load_from_fp32_weights", "elastic_checkpoint", "offload_param", "offload_optimizer", "zenflow"),
            *("sub_group_size", "cpu_offload_param", "cpu_offload_use_pin_memory", "cpu_offload", "leaf_module"),
            *("stage3_prefetch_bucket_size", "stage3_param_persistence_threshold", "stage3_max_live_parameters"),
            *("stage3_model_persistence_threshold", "stage3_max_reuse_distance", "stage3_allgather_sequential"),
            *("stage3_gather_16bit_weights_on_model_save", "stage3_module_granularity_threshold"),
            *("stage3_use_all_reduce_for_fetch_params", "stage3_gather_fp16_weights_on_model_save"),
            *("ignore_unused_parameters", "legacy_stage1", "round_robin_gradients", "parameter_alignment"),
            *("zero_hpz_partition_size", "zero_quantized_weights", "zero_quantized_nontrainable_weights"),
            *("zero_quantized_gradients", "memory_efficient_linear", "pipeline_loading_checkpoint"),
            *("override_module_apply", "log_trace_cache_warnings", "enable_sanity_checks"),
            *("save_muon_momentum_buffer_in_memory",),
        )
    ),
    "activation_checkpointing": frozenset(
        (
            *("partition_activations", "number_checkpoints", "contiguous_memory_optimization", "cpu_checkpointing"),
            *("synchronize_checkpoint_boundary", "profile"),
        )
    ),
    "optimizer": frozenset(("type", "params", "legacy_fusion")),
    "scheduler": frozenset(("type", "params")),
    "fp16": frozenset(
        (
            *("enabled", "auto_cast", "loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis"),
            *("consecutive_hysteresis", "min_loss_scale", "fp16_master_weights_and_grads"),
        )
    ),
    "bf16": frozenset(
        (
            *("enabled", "immediate_grad_update", "check_grad_overflow", "bf16_master_weights_and_grads"),
            *("bf16_optimizer_states",),
        )
    ),
}
# What people write although it is no key of DeepSpeed's, and what does it instead.
_INSTEAD = {
    "gradient_checkpointing": "checkpointing is done by the model: call model.activation_checkpointing_enable() "
    "(Hugging Face, before 5.23 gradient_checkpointing_enable) or torch.utils.checkpoint in its forward",
    "batch_size": "give train_batch_size, or train_micro_batch_size_per_gpu",
    "zero_stage": 'give "zero_optimization": {"stage": ...}',
}


def remarks(configuration: Mapping[str, Any]) -> Iterator[str]:
    """A sentence about each key that DeepSpeed does not know where it stands."""
    for key in configuration:
        if key in REMOVED:
            yield f"{key!r} was removed from DeepSpeed, which refuses it: take it out."
        elif key not in TOP:
            yield f"{key!r} at the top level is ignored by DeepSpeed: {_instead(key, TOP)}."
    for name, known in SECTIONS.items():
        section = configuration.get(name)
        for key in section if isinstance(section, Mapping) else ():
            if key not in known and f"stage3_{key}" not in known:  # DeepSpeed takes both names
                yield f"{key!r} in {name!r} is not known to DeepSpeed: {_instead(key, known)}."


def _instead(key: str, known: frozenset[str]) -> str:
    if key in _INSTEAD:
        return _INSTEAD[key]
    if key in TOP and known is not TOP:
        return "it belongs at the top level"
    for name, section in SECTIONS.items():
        if key in section and section is not known and key not in ("type", "params", "enabled"):
            return f"it belongs in {name!r}"
    close = get_close_matches(key, known, n=1)
    return f"{close[0]!r} may be meant" if close else "take it out, or look up its name"
