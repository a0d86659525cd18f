"""Which tokens end an answer or open a thought, told by their text: vocabularies don't say it themselves.

The end-of-answer texts are those that llama.cpp goes by (``src/llama-vocab.cpp``, "special_eog_ids"), but
for ``</s>``: where it isn't a control token it is HTML's mark for struck-out text, and ends no answer.
"""

END_TEXTS = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
)

# Padding, repository and file marks of fill-in-the-middle models: a chat model that writes one is done.
# Of each group the first text that the vocabulary has counts.
FIM_END_TEXTS = {
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}

# Where all of a set are there, an answer has several channels and <|end|> only ends one of them.
CHANNEL_ENDS = (
    frozenset({"<|return|>", "<|call|>", "<|end|>"}),
    frozenset({"<|return|>", "<|calls|>", "<|end|>"}),
    frozenset({"<|call|>", "<|flush|>", "<|end|>"}),
    frozenset({"<|calls|>", "<|flush|>", "<|end|>"}),
)

# What opens a thought at the end of a prompt.
THOUGHT_OPENERS = (
    "<think>",
    "<thinking>",
    "<thought>",
    "<reasoning>",
    "<think:opensource>",
    "<seed:think>",
    "<mm:think>",
    "[THINK]",
    "<|START_THINKING|>",
    "<|channel>thought",
    "<|open|>think<|sep|>",
    "<|channel|>analysis<|message|>",
)
