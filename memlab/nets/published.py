"""The sizes of models that people know by name, as arguments of this package's classes."""

# Radford et al. 2019: 124,439,808, 354,823,168, 774,030,080 and 1,557,611,200 weights.
GPT2_SMALL = {"depth": 12, "width": 768, "heads": 12, "context": 1024, "vocabulary": 50_257}
GPT2_MEDIUM = GPT2_SMALL | {"depth": 24, "width": 1024, "heads": 16}
GPT2_LARGE = GPT2_SMALL | {"depth": 36, "width": 1280, "heads": 20}
GPT2_XL = GPT2_SMALL | {"depth": 48, "width": 1600, "heads": 25}

# Llama 3.2 1B and 3.1 8B (Grattafiori et al. 2024): 1,235,814,400 and 8,030,261,248 weights.
LLAMA_1B = {"depth": 16, "width": 2048, "heads": 32, "kv_heads": 8, "hidden": 8192, "vocabulary": 128_256, "tied": True}
LLAMA_8B = LLAMA_1B | {"depth": 32, "width": 4096, "hidden": 14_336, "tied": False}

# He et al. 2016: 25,557,032 weights.
RESNET_50 = {"blocks": (3, 4, 6, 3), "bottleneck": True, "large_images": True, "classes": 1000, "inplace": True}

# Dosovitskiy et al. 2021: 86,567,656 weights.
VIT_B_16 = {"depth": 12, "width": 768, "heads": 12, "image": 224, "patch": 16, "classes": 1000}
