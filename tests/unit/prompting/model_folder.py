"""Writes tiny model folders: a byte-level tokenizer (one token a byte), control tokens, a chat template."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "[/TURN]")


def write_model(
    folder: Path, template: str | list | None = CHATML, control: tuple[str, ...] = CONTROL, normalized: bool = False
) -> str:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: place for place, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if normalized:
        from tokenizers import normalizers

        tokenizer.normalizer = normalizers.NFKC()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=normalized) for text in control])
    tokenizer.enable_truncation(5)  # some published tokenizers carry this; counting must not fall for it
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|endoftext|>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return str(folder)
