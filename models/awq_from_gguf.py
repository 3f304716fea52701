"""Makes a Hugging Face folder with 4-bit AWQ weights out of a Qwen2 GGUF file, to try the AWQ path with a real model.

    python3 models/awq_from_gguf.py MODEL.gguf OUT [--group 128]

Needs the Python packages gguf, numpy and safetensors. Weights are rounded to the nearest step, without calibration, so
the result is worse than a published AWQ model; layout and file names are those of AutoAWQ's `gemm` version.
"""
import argparse
import json
import pathlib

import gguf
import numpy as np
from safetensors.numpy import save_file

ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # bits 4k.. of a word hold output column ORDER[k]
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LINEARS = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


def words(numbers):
    """Packs numbers 0..15 (rows, outputs) into int32 words (rows, outputs / 8)."""
    eights = numbers.astype(np.uint32).reshape(numbers.shape[0], -1, 8)
    packed = np.zeros(eights.shape[:2], np.uint32)
    for place, column in enumerate(ORDER):
        packed |= eights[:, :, column] << np.uint32(4 * place)
    return packed.view(np.int32)


def quantise(weight, group):
    """Rounds a weight (outputs, inputs) to 16 steps per group of inputs."""
    outputs, inputs = weight.shape
    groups = weight.reshape(outputs, inputs // group, group)
    low, high = groups.min(2), groups.max(2)
    scale = np.maximum((high - low) / 15, 1e-7).astype(np.float16)
    zero = np.clip(np.round(-low / scale.astype(np.float32)), 0, 15)
    steps = np.round(groups / scale.astype(np.float32)[:, :, None]) + zero[:, :, None]
    numbers = np.clip(steps, 0, 15).reshape(outputs, inputs)
    return words(np.ascontiguousarray(numbers.T)), words(np.ascontiguousarray(zero.T)), np.ascontiguousarray(scale.T)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--group", type=int, default=128, choices=[32, 64, 128])
    args = parser.parse_args()
    reader = gguf.GGUFReader(args.model)
    field = lambda key, other=None: reader.fields[key].contents() if key in reader.fields else other
    if field("general.architecture") != "qwen2":
        parser.error(f"{args.model}: expected the architecture qwen2, found {field('general.architecture')!r}")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    read = lambda name: gguf.quants.dequantize(tensors[name].data, tensors[name].tensor_type).astype(np.float32)
    half = lambda name: read(name).astype(np.float16)

    stored = {"model.embed_tokens.weight": half("token_embd.weight"), "model.norm.weight": half("output_norm.weight")}
    tied = "output.weight" not in tensors
    if not tied:
        stored["lm_head.weight"] = half("output.weight")
    for layer in range(field("qwen2.block_count")):
        theirs, ours = f"blk.{layer}", f"model.layers.{layer}"
        for short, long in NORMS.items():
            stored[f"{ours}.{long}.weight"] = half(f"{theirs}.{short}.weight")
        for short, long in LINEARS.items():
            qweight, qzeros, scales = quantise(read(f"{theirs}.{short}.weight"), args.group)
            stored |= {f"{ours}.{long}.qweight": qweight, f"{ours}.{long}.qzeros": qzeros, f"{ours}.{long}.scales": scales}
            if f"{theirs}.{short}.bias" in tensors:
                stored[f"{ours}.{long}.bias"] = half(f"{theirs}.{short}.bias")

    texts, kinds = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    control, added = 3, 4
    special = [(id, text, kind) for id, (text, kind) in enumerate(zip(texts, kinds)) if kind in (control, added)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [
            {"id": id, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": kind == control} for id, text, kind in special
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {text: id for id, (text, kind) in enumerate(zip(texts, kinds)) if kind not in (control, added)},
            "merges": list(field("tokenizer.ggml.merges")),
        },
    }
    number = lambda key: field(f"qwen2.{key}")
    eos = field("tokenizer.ggml.eos_token_id")
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "torch_dtype": "float16",
        "hidden_size": number("embedding_length"), "intermediate_size": number("feed_forward_length"),
        "num_hidden_layers": number("block_count"), "num_attention_heads": number("attention.head_count"),
        "num_key_value_heads": number("attention.head_count_kv"), "max_position_embeddings": number("context_length"),
        "rms_norm_eps": number("attention.layer_norm_rms_epsilon"), "rope_theta": number("rope.freq_base"),
        "tie_word_embeddings": tied, "vocab_size": len(texts), "eos_token_id": eos, "use_sliding_window": False,
        "quantization_config": {
            "quant_method": "awq", "version": "gemm", "bits": 4, "group_size": args.group, "zero_point": True,
            "modules_to_not_convert": None,
        },
    }
    args.out.mkdir(parents=True, exist_ok=True)
    save_file(stored, args.out / "model.safetensors", metadata={"format": "pt"})
    for name, content in {
        "config.json": config, "generation_config.json": {"eos_token_id": eos}, "tokenizer.json": tokenizer,
        "tokenizer_config.json": {
            "tokenizer_class": "Qwen2Tokenizer", "eos_token": texts[eos], "bos_token": None,
            "chat_template": field("tokenizer.chat_template"),
        },
    }.items():
        (args.out / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
