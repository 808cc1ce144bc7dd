#!/usr/bin/env python3
"""Writes the files of this folder anew: a tiny BERT with drawn weights, and the probabilities that transformers computes with them.

Wants torch, transformers, tokenizers and safetensors; no test runs it."""
import csv
import json
import os

import torch
from safetensors.torch import save_file
from tokenizers.implementations import BertWordPieceTokenizer
from transformers import BertConfig, BertForSequenceClassification

FOLDER = os.path.dirname(os.path.abspath(__file__))
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat ##s sat on mat dog who where ? . ran a ##n house is in ##side".split()
PAIRS = [("Who sat on the mat?", "The cats sat on the mat."), ("where is a dog", "a dog is inside."), ("the", "Zebra ran"),
         ("where is the house?", "An house is in the dog on the mat the cat sat on a mat")]  # the last one is cut
LENGTH = 16

path = lambda name: os.path.join(FOLDER, name)
with open(path("vocab.txt"), "w") as file:
    file.write("\n".join(WORDS) + "\n")
torch.manual_seed(3)
model = BertForSequenceClassification(BertConfig(
    vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, max_position_embeddings=LENGTH,
    num_labels=3, initializer_range=0.5)).eval()
with torch.no_grad():
    for name, values in model.named_parameters():
        if "LayerNorm" in name or name.endswith("bias"):
            values.add_(0.2 * torch.randn_like(values))
save_file({name: values.contiguous() for name, values in model.state_dict().items()}, path("model.safetensors"))

tokenizer = BertWordPieceTokenizer(path("vocab.txt"), lowercase=True)
tokenizer.enable_truncation(LENGTH, strategy="longest_first")
expected = []
for first, second in PAIRS:
    text = tokenizer.encode(first, second)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([text.ids]), token_type_ids=torch.tensor([text.type_ids])).logits
    expected.append({"first": first, "second": second, "ids": text.ids, "probabilities": [round(float(p), 8) for p in logits.double().softmax(-1)[0]]})
with open(path("expected.json"), "w") as file:
    json.dump(expected, file, indent=1)
for name, heading, rows in (("pairs.csv", ["first", "second"], PAIRS), ("train.csv", ["first", "second", "kind"], [(*pair, "abc"[i % 3]) for i, pair in enumerate(PAIRS)])):
    with open(path(name), "w") as file:
        csv.writer(file, lineterminator="\n").writerows([heading, *rows])
