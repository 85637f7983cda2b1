"""Measures one tokenizer file with one library: reference.py LIBRARY TOKENIZER TEXTS"""
import json
import resource
import sys
from time import process_time

library, path, texts = sys.argv[1:]
with open(texts, encoding="utf-8") as file:
    parts = json.load(file)

if library == "fastokens":
    from array import array

    from fastokens import Tokenizer

    def encode(tokenizer, text):
        return tokenizer.encode_batch_flat([text])[0]

    def ids(tokenizer, text):
        return array("I", encode(tokenizer, text))
else:
    from tokenizers import Tokenizer

    def encode(tokenizer, text):
        return tokenizer.encode(text, add_special_tokens=False)

    def ids(tokenizer, text):
        return encode(tokenizer, text).ids


def load():
    tokenizer = Tokenizer.from_file(path)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def timed(work):
    start = process_time()
    result = work()
    return process_time() - start, result


def all_texts(tokenizer, list_of_texts):
    for text in list_of_texts:
        encode(tokenizer, text)


seconds, first = timed(load)
cold, _ = timed(lambda: all_texts(first, parts["Measured"]))
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
second = load()
all_texts(second, parts["Warm"])
warm, _ = timed(lambda: all_texts(second, parts["Measured"]))
total = tokens = 0
for text in parts["Measured"]:
    for token in ids(second, text):
        total = (total * 31 + token) % 2**64
        tokens += 1
print(json.dumps({"load": seconds, "cold": cold, "warm": warm, "memory": memory, "sum": total, "tokens": tokens}))
