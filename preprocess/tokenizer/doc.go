// Package tokenizer turns text into the token ids of a language model and back, exactly as the Hugging Face tokenizers library does.
//
// It reads tokenizer.json files: BPE (byte-level or with byte fallback), WordPiece and Unigram models with their normalizers,
// pre-tokenizers, post-processors and decoders, and the added tokens. A part that it does not know is an error at [Load], never a wrong
// id later. Tokenizers are safe for concurrent use.
//
// Common split patterns are cut by scanners written for them and encoded with a cache of words; others go through a regular expression
// engine.
package tokenizer
