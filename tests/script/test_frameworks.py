"""Scripts that leave their loop to a framework, unmodified; and loops of the same shapes, which need none."""

import pytest

# A loop as timm's: autocast, a scaler, accumulation, clipping, an average of the weights, a schedule.
AS_TIMM = """
    import contextlib, torch
    from torch import nn

    device = torch.device("cuda")
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 10)).to(device)
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    scaler = torch.cuda.amp.GradScaler()
    model.train()
    for index in range(1000):
        with torch.autocast("cuda", torch.float16):
            output = model(torch.randn(8, 64).to(device, non_blocking=True))
            loss = nn.functional.cross_entropy(output, torch.randint(10, (8,)).to(device)) / 2
        scaler.scale(loss).backward()
        if index % 2:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            average.update_parameters(model)
            schedule.step()
"""
# As Lightning's: backward is in a closure that the optimizer calls, and all of it in a try.
AS_LIGHTNING = """
    import torch

    class Trainer:
        def fit(self, model):
            optimizer = torch.optim.Adam(model.parameters())
            try:
                for _ in range(1000):
                    optimizer.step(closure=lambda: self.closure(model, optimizer))
            except BaseException:
                model.cpu()
                raise

        def closure(self, model, optimizer):
            loss = model(torch.randn(8, 64, device="cuda")).sum()
            optimizer.zero_grad()
            loss.backward()
            return loss

    Trainer().fit(torch.nn.Linear(64, 64).cuda())
"""
ACCELERATE = """
    import torch
    from accelerate import Accelerator
    from torch.utils.data import DataLoader, TensorDataset

    accelerator = Accelerator(gradient_accumulation_steps=2, mixed_precision="fp16")
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(TensorDataset(torch.randn(64, 64)), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    assert accelerator.device.type == "cuda"
    for (batch,) in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()
"""
TRAINER = """
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    model = GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=2, n_head=2, vocab_size=100, n_positions=32))
    tokens = torch.randint(100, (64, 32))
    data = [{"input_ids": row, "labels": row} for row in tokens]
    arguments = TrainingArguments("out", per_device_train_batch_size=4, gradient_accumulation_steps=2, report_to="none")
    assert arguments.device.type == "cuda"
    Trainer(model, arguments, train_dataset=data).train()
"""
LIGHTNING = """
    import torch
    import lightning
    from torch.utils.data import DataLoader

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(64, 64)

        def training_step(self, batch, index):
            assert batch.device.type == "cuda"
            return self.layer(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    trainer = lightning.Trainer(logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(Model(), DataLoader(torch.randn(64, 64), batch_size=8))
"""
SCRIPTS = {
    "as timm": ("torch", AS_TIMM),
    "as lightning": ("torch", AS_LIGHTNING),
    "accelerate": ("accelerate", ACCELERATE),
    "transformers": ("accelerate", TRAINER),
    "lightning": ("lightning", LIGHTNING),
}


@pytest.mark.filterwarnings("ignore")  # the frameworks' own
@pytest.mark.parametrize("name", SCRIPTS)
def test_three_steps_are_predicted(name, run_script, tmp_path, monkeypatch):
    library, text = SCRIPTS[name]
    pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    trace = run_script(text).complete()
    assert len(trace.steps) == 3
    assert trace.by_category["parameter"] > 0
    assert trace.by_category["gradient"] > 0
    assert trace.oom is None
