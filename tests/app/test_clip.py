"""A CLIP-type embedder over a tiny checkpoint that is made here: the embedder's contract, and one space for both."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from app.config.embedder import EmbedderConfig
from app.config.retrieval import RetrieverConfig, StoreConfig
from app.embedders.contract import ImageEmbedder
from app.embedders.factory import build_embedder
from app.errors import ConfigError, InvalidRequest
from app.messages import RetrievalQuery
from app.stages.retriever import Retriever, RetrieverStructure
from app.testing.store import MemoryStore

TEXTS = ["a red square", "", "blue", "a red square and a long line of other words " * 30, "你好 😀"]
DIMENSION = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random model of the real architecture, with a tokenizer of bytes."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

    made = tmp_path_factory.mktemp("clip")
    vocabulary = {sign: place for place, sign in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    begin, end = len(vocabulary), len(vocabulary) + 1
    vocabulary |= {"<|startoftext|>": begin, "<|endoftext|>": end}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<|startoftext|>", "<|endoftext|>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|startoftext|> $A <|endoftext|>", special_tokens=[("<|startoftext|>", begin), ("<|endoftext|>", end)]
    )
    tokenizer.save(str(made / "tokenizer.json"))
    torch.manual_seed(7)
    tower = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {"vocab_size": len(vocabulary), "bos_token_id": begin, "eos_token_id": end, "pad_token_id": end}
    config = CLIPConfig(
        text_config={**tower, **ids, "max_position_embeddings": 77},
        vision_config={**tower, "image_size": 32, "patch_size": 8},
        projection_dim=DIMENSION,
    )
    CLIPModel(config).save_pretrained(made)
    CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(made)
    return made


@pytest.fixture(scope="module")
def embedder(folder):
    started = build_embedder(EmbedderConfig(kind="clip", source=str(folder), batch_size=2))
    started.start()
    yield started
    started.close()


def picture(color="red", kind="PNG", size=(40, 30)):
    held = io.BytesIO()
    Image.new("RGB", size, color).save(held, kind)
    return held.getvalue()


def test_texts_keep_the_embedder_s_contract(embedder):
    encoded = embedder.encode(TEXTS, "query", tokens=True)
    assert (embedder.dimension, embedder.max_tokens) == (DIMENSION, 77)
    assert encoded.vectors.shape == (len(TEXTS), DIMENSION)
    assert encoded.vectors.dtype == encoded.tokens.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(encoded.vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(encoded.tokens, axis=1), 1, atol=1e-5)
    assert encoded.offsets[-1] == len(encoded.tokens)
    assert list(np.diff(encoded.offsets))[1] == 0
    assert list(encoded.truncated) == [False, False, False, True, False]
    assert [count > 77 for count in embedder.count_tokens(TEXTS, "query")] == list(encoded.truncated)


def test_a_vector_depends_on_its_own_text_alone(embedder):
    together = embedder.encode(TEXTS, "query").vectors
    for text, vector in zip(TEXTS, together, strict=True):
        np.testing.assert_allclose(embedder.encode([text], "passage").vectors[0], vector, atol=1e-5)


def test_vectors_are_those_of_transformers(embedder, folder):
    import torch
    from transformers import AutoImageProcessor, CLIPModel

    model = CLIPModel.from_pretrained(folder).eval()
    ids = torch.tensor([embedder._loaded.tokenizer.encode(TEXTS[0]).ids])
    pixels = AutoImageProcessor.from_pretrained(folder)(images=Image.new("RGB", (40, 30), "red"), return_tensors="pt")
    with torch.inference_mode():
        text = model.get_text_features(input_ids=ids).pooler_output[0].numpy()
        image = model.get_image_features(**pixels).pooler_output[0].numpy()
    np.testing.assert_allclose(embedder.encode(TEXTS[:1], "query").vectors[0], text / np.linalg.norm(text), atol=1e-5)
    np.testing.assert_allclose(embedder.encode_images([picture()])[0], image / np.linalg.norm(image), atol=1e-5)


def test_images_become_unit_vectors_of_the_same_space(embedder):
    assert isinstance(embedder, ImageEmbedder)
    seen = embedder.encode_images([picture("red"), picture("blue", "JPEG"), picture("red", "WEBP", (9, 200))])
    assert (seen.shape, seen.dtype) == ((3, DIMENSION), np.float32)
    np.testing.assert_allclose(np.linalg.norm(seen, axis=1), 1, atol=1e-5)
    assert not np.allclose(seen[0], seen[1], atol=1e-3)
    assert embedder.encode_images([]).shape == (0, DIMENSION)
    with pytest.raises(InvalidRequest, match="Image 1 is damaged"):
        embedder.encode_images([picture(), picture()[:60]])


def test_a_question_s_image_moves_its_search(embedder, folder, tmp_path):
    structure = RetrieverStructure(
        store=StoreConfig(uri=str(tmp_path)), embedder=EmbedderConfig(kind="clip", source=str(folder))
    )
    retriever = Retriever(structure, RetrieverConfig(), store=MemoryStore(), embedder=embedder)
    retriever.start()
    retriever.upsert_documents("docs", [{"id": str(number), "text": text} for number, text in enumerate("abcd")])

    def scores(*images):
        uris = tuple("data:image/png;base64," + base64.b64encode(image).decode() for image in images)
        query = RetrievalQuery("a", ("docs",), top_k=4, candidates=4, mode="vector", images=uris)
        found = retriever.run(query).passages.select(["id", "score"]).to_pylist()
        return {passage["id"].split("-")[0]: passage["score"] for passage in found}

    plain = scores()
    assert max(plain.values()) == pytest.approx(1, abs=1e-4)
    assert scores(picture("red")) != plain
    with pytest.raises(InvalidRequest, match="damaged"):
        scores(picture()[:60])


def test_a_text_encoder_is_refused_as_clip(models):
    with pytest.raises(ConfigError, match="no CLIP model"):
        build_embedder(EmbedderConfig(kind="clip", source=str(models / "e5-small"))).start()
