"""Which files of a repository are taken."""

import pytest

from mashbox.errors import NotFound, UnsupportedModel
from mashbox.pull.choose import choose
from mashbox.pull.plan import split_set

BASICS = ["config.json", "tokenizer.json", "tokenizer_config.json"]


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (["m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf"], "m-Q4_K_M.gguf"),
        (["m-Q8_0.gguf", "m-Q4_0.gguf", "m-Q4_1.gguf"], "m-Q4_1.gguf"),
        (["m.Q2_K.gguf", "m.Q8_0.gguf"], "m.Q8_0.gguf"),
        (["m-F16.gguf", "m-BF16.gguf"], "m-BF16.gguf"),
        (["m-IQ4_XS.gguf", "m-XQ4_K_M.gguf"], "m-IQ4_XS.gguf"),
        (["gpt-oss-20b-MXFP4.gguf", "gpt-oss-20b-Q8_0.gguf"], "gpt-oss-20b-MXFP4.gguf"),
        (["m-q4_k_m.gguf", "mmproj-m-Q4_K_M.gguf", "mtp-m-Q4_K_M.gguf"], "m-q4_k_m.gguf"),
        (["m-UD-Q4_K_M.gguf", "m-Q4_K_M.gguf"], "m-Q4_K_M.gguf"),
        (["only.gguf", "README.md", "imatrix.gguf"], "only.gguf"),
    ],
)
def test_the_best_gguf(names: list[str], taken: str) -> None:
    assert choose(names, "here") == ("gguf", [taken])


def test_safetensors_come_before_ggufs() -> None:
    format, files = choose([*BASICS, "model.safetensors", "m-Q4_K_M.gguf", "merges.txt", "run.py"], "here")
    assert format == "safetensors"
    assert files == [
        "config.json",
        "merges.txt",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors",
    ]


@pytest.mark.parametrize(
    ("weights", "taken"),
    [
        (["model.safetensors", "consolidated.safetensors"], ["model.safetensors"]),
        (["weights.safetensors", "adapter_model.safetensors"], ["weights.safetensors"]),
        (
            [
                "model.safetensors.index.json",
                "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors",
                "consolidated.safetensors",
            ],
            ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
        ),
    ],
)
def test_of_several_sets_of_safetensors_the_one_of_transformers(weights: list[str], taken: list[str]) -> None:
    _, files = choose([*BASICS, *weights], "here")
    assert [name for name in files if name.endswith(".safetensors")] == taken


def test_a_quantisation_by_name() -> None:
    names = ["m-Q4_K_M.gguf", "m-Q8_0.gguf", "m-Q8_0-00001-of-00002.gguf"]
    assert choose(names, "here", "q8_0") == ("gguf", ["m-Q8_0.gguf"])
    with pytest.raises(NotFound, match=r"no GGUF of quantisation Q6_K.*m-Q4_K_M\.gguf"):
        choose(names, "here", "Q6_K")


def test_nothing_to_take() -> None:
    with pytest.raises(UnsupportedModel, match="here has neither"):
        choose(["sub/model.safetensors", "README.md"], "here")
    with pytest.raises(UnsupportedModel, match=r"no tokenizer\.json"):
        choose(["config.json", "model.safetensors", "tokenizer.model"], "here")
    with pytest.raises(NotFound, match="no GGUF at all"):
        choose(["README.md"], "here", "x.gguf")


def test_split_set() -> None:
    assert split_set("a/m-00002-of-00002.gguf") == ["a/m-00001-of-00002.gguf", "a/m-00002-of-00002.gguf"]
    assert split_set("m.gguf") == ["m.gguf"]
