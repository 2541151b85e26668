"""A Whisper that is small enough to start in seconds: random weights, and a tokenizer of bytes."""

from __future__ import annotations

import io
import json
import wave
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

END = "<|endoftext|>"
TASKS = (
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
)
TIMES = 1501
"""Time stamps of 0.02 s, up to 30 s."""

WIDTH = 64


def write_tiny_whisper(folder: Path) -> Path:
    """The model in ``folder``."""
    from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration
    from transformers.models.whisper.tokenization_whisper import LANGUAGES

    folder.mkdir(parents=True)
    tokenizer = _tokenizer([f"<|{code}|>" for code in LANGUAGES])
    tokenizer.save(str(folder / "tokenizer.json"))
    end, start = tokenizer.token_to_id(END), tokenizer.token_to_id("<|startoftranscript|>")
    config = WhisperConfig(
        vocab_size=tokenizer.get_vocab_size(),
        d_model=WIDTH,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=2 * WIDTH,
        decoder_ffn_dim=2 * WIDTH,
        decoder_start_token_id=start,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config)
    model.save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=80).save_pretrained(folder)
    about = {"tokenizer_class": "WhisperTokenizer", "processor_class": "WhisperProcessor", "eos_token": END}
    (folder / "tokenizer_config.json").write_text(json.dumps({**about, "bos_token": END, "unk_token": END}))
    return folder


def _tokenizer(languages: list[str]) -> Tokenizer:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END, "<|startoftranscript|>", *languages, *TASKS])
    times = [f"<|{number * 0.02:.2f}|>" for number in range(TIMES)]
    tokenizer.add_tokens([AddedToken(time, normalized=False) for time in times])
    return tokenizer


def recording(seconds: float, rate: int = 16_000) -> bytes:
    """A WAV with a tone."""
    at = np.arange(int(rate * seconds)) / rate
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.rint(10_000 * np.sin(2 * np.pi * 440 * at)).astype("<i2").tobytes())
    return written.getvalue()
