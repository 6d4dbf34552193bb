"""TRL's SFTTrainer as people run it: ``sft_script.py FOLDER [flag=value ...]``, SFTConfig's flags and load_in_4bit."""

import ast
import sys

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

folder, *words = sys.argv[1:]
flags = {name: ast.literal_eval(value) for name, _, value in (word.partition("=") for word in words)}
bits = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_use_double_quant=True,
    bnb_4bit_compute_dtype=torch.bfloat16,
)
model = AutoModelForCausalLM.from_pretrained(
    folder,
    dtype=torch.bfloat16,
    quantization_config=bits if flags.pop("load_in_4bit", False) else None,
    device_map={"": 0},
)
words_of = Tokenizer(models.WordLevel({"<pad>": 0, "a": 1, "<eos>": 2}, "a"))
lengths = [1024, 512, 256, 256] * 64  # tokens of a text: half of the longest, on average
options = {"per_device_train_batch_size": 8, "bf16": True, "max_steps": 3, "report_to": [], "save_strategy": "no"}
SFTTrainer(
    model,
    args=SFTConfig("out", **options, **flags),
    train_dataset=Dataset.from_dict({"input_ids": [[1] * length for length in lengths]}),
    processing_class=PreTrainedTokenizerFast(tokenizer_object=words_of, pad_token="<pad>", eos_token="<eos>"),
    peft_config=LoraConfig(r=16, target_modules="all-linear"),
).train()
