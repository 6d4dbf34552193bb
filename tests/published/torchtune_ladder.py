"""The memory of torchtune's optimization flags, one after the other, as published of a real A100, and predicted.

``python -m tests.published.torchtune_ladder`` writes ``notebooks/recorded/torchtune.json``, in two minutes, where
torchtune 0.4.0, torchao 0.10.0 and bitsandbytes are installed beside memlab. The loop is that of torchtune's recipes
for one card (``full_finetune_single_device.py`` and ``lora_finetune_single_device.py``), with its models, losses,
checkpoints and offloading. All lines but the first are compiled, layer by layer, and attention is compiled
FlexAttention in all. Nothing is fitted.
"""

import json
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from typing import Any

import torch

from memlab import predict
from memlab.files import write_atomically
from memlab.lab.recorded import folder

SOURCE = "https://github.com/pytorch/torchtune/blob/1814feb17a9038e1a8053ce93111bd26774a8db6/README.md"
GPU = "A100-80GB"
BATCH, TOKENS = 2, 4096
LORA = {
    "lora_attn_modules": ["q_proj", "v_proj", "output_proj"],
    "apply_lora_to_mlp": True,
    "lora_rank": 64,
    "lora_alpha": 128,
}
COMPILED: dict[str, Any] = {"compiled": True}
CHUNKED = COMPILED | {"chunked": True}
CHECKPOINTED = CHUNKED | {"checkpoints": True}
IN_BACKWARD = CHECKPOINTED | {"in_backward": True}
OFFLOADED = IN_BACKWARD | {"offload": True}
ADAPTED = CHECKPOINTED | {"offload": True}
# The line, what is published in GiB ("peak memory active"), and settings of train. The first line of the table, texts
# of different lengths, needs its data set.
LADDER: list[tuple[str, float, dict[str, Any]]] = [
    ("packed dataset", 60.0, {}),
    ("+ compile", 51.0, COMPILED),
    ("+ chunked cross-entropy", 42.9, CHUNKED),
    ("+ activation checkpointing", 24.9, CHECKPOINTED),
    ("+ optimizer step in backward", 23.1, IN_BACKWARD),
    ("+ activation offloading", 21.8, OFFLOADED),
    ("+ 8-bit AdamW", 17.6, OFFLOADED | {"eight_bits": True}),
    ("LoRA", 8.5, ADAPTED | {"adapters": "lora"}),
    ("QLoRA", 4.6, ADAPTED | {"adapters": "qlora"}),
]


def train(
    device: torch.device,
    *,
    compiled: bool = False,
    chunked: bool = False,
    checkpoints: bool = False,
    in_backward: bool = False,
    offload: bool = False,
    eight_bits: bool = False,
    adapters: str = "",
) -> Iterator[torch.Tensor]:
    """Fine-tune Llama 3.2 3B in bfloat16 on packed texts.

    Args:
        device: where.
        compiled: each block and, of a chunked loss, the loss of a chunk.
        chunked: the loss of an eighth of the tokens at a time.
        checkpoints: each block.
        in_backward: step a weight as soon as it has its gradient.
        offload: what is kept for backward goes to the host.
        eight_bits: the state of AdamW.
        adapters: "lora", "qlora" or none.
    """
    # Here, because torchtune asks when it is imported whether the card has FlexAttention.
    import bitsandbytes
    from torchtune import modules, training
    from torchtune.models import llama3_2
    from torchtune.modules.attention_utils import packed_block_causal_mask
    from torchtune.modules.loss import CEWithChunkedOutputLoss
    from torchtune.modules.peft import get_adapter_params, set_trainable_params

    make = getattr(llama3_2, f"{adapters}_llama3_2_3b" if adapters else "llama3_2_3b")
    with training.set_default_dtype(torch.bfloat16), device:
        model = make(**LORA if adapters else {})
    if adapters:
        set_trainable_params(model, get_adapter_params(model))
    if compiled:
        training.compile_model(model, verbose=False)
    if checkpoints:
        training.set_activation_checkpointing(model, auto_wrap_policy={modules.TransformerSelfAttentionLayer})
    moving = training.get_act_offloading_ctx_manager(model, offload)
    make_optimizer = partial(bitsandbytes.optim.AdamW8bit if eight_bits else torch.optim.AdamW, lr=2e-5)
    if not eight_bits:
        make_optimizer = partial(make_optimizer, fused=True)
    optimizer = None if in_backward else make_optimizer(model.parameters())
    if in_backward:
        each = {weight: make_optimizer([weight]) for weight in model.parameters()}
        training.register_optim_in_bwd_hooks(model=model, optim_dict=each)
    loss_of = CEWithChunkedOutputLoss() if chunked else torch.nn.CrossEntropyLoss()
    if compiled:
        training.compile_loss(loss_of, verbose=False)  # what it returns is not used: a plain loss stays as it is
    if chunked:
        model.set_num_output_chunks(loss_of.num_output_chunks)
    last = torch.full((BATCH, 1), -100, device=device)
    for _ in range(2):
        texts = [torch.full((16,), TOKENS // 16)] * BATCH
        batch = {
            "tokens": torch.ones(BATCH, TOKENS, dtype=torch.long),
            "input_pos": torch.arange(TOKENS // 16).repeat(BATCH, 16),
            "mask": packed_block_causal_mask(seq_lens=texts),
        }
        labels = torch.ones(BATCH, TOKENS, dtype=torch.long).to(device)
        batch = {name: value.to(device) for name, value in batch.items()}
        count = (labels != -100).sum()
        with moving:
            logits = model(**batch)
        labels = torch.hstack((labels[..., 1:], last))
        if not chunked:
            labels, logits = labels.reshape(-1), logits.reshape(-1, logits.size(-1))
        loss = loss_of(logits, labels)
        del logits
        loss = loss * count
        loss.backward()
        if optimizer:
            training.scale_grads(model, 1 / count)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        yield loss


def main() -> None:
    rows = []
    for name, published, settings in LADDER:
        trace = predict(train, gpu=GPU, steps=2, **settings)
        peak = trace.peak_allocated / 2**30
        rows.append([name, published, peak])
        print(f"{name:30} {published:5.1f} {peak:6.2f} GiB {peak / published - 1:+.1%}", *trace.notes, flush=True)
    versions = {name: version(name) for name in ("torch", "torchtune", "torchao", "bitsandbytes")}
    record = {"source": SOURCE, "gpu": GPU, "versions": versions, "rows": rows}
    write_atomically(folder() / "torchtune.json", json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
