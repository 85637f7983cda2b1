package tokenizer

// wordEncoder is the fast way for texts that a known scanner cuts and byte-level BPE encodes.
type wordEncoder struct {
	scan scanner
	bpe  *bpe
}

func (w *wordEncoder) encode(dst []uint32, s string) []uint32 {
	var ends [128]int32
	for at := 0; at < len(s); {
		for _, end := range ends[:w.scan(s, at, ends[:])] {
			dst = w.bpe.encode(dst, s[at:end])
			at = int(end)
		}
	}
	return dst
}
