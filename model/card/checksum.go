package card

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"

	"lukechampine.com/blake3"
)

// indexerIdentityDomain keeps the identity's bytes apart from whatever may precede them.
const indexerIdentityDomain = "dynamo/model-card/indexer-identity/v1"

// Checksum is the card's identity, 64 hex digits of BLAKE3 ("mdcsum"). Workers whose cards have different checksums don't serve
// in one set. Where the files are, what the model can be asked for, and most of the runtime configuration do not count.
func (c *Card) Checksum() string {
	hash := blake3.New(32, nil)
	write := func(text string) { io.WriteString(hash, text) } // a hash never fails to write
	big := func(n int) { hash.Write(binary.BigEndian.AppendUint32(nil, uint32(n))) }

	write(c.DisplayName)
	write(c.SourcePath)
	for _, artifact := range []*Artifact{c.ModelInfo, c.Tokenizer, c.PromptFormatter, c.ChatTemplateFile, c.GenerationConfig} {
		if artifact != nil {
			write(artifact.File.Checksum)
		}
	}
	extras := slices.Clone(c.ExtraFiles)
	slices.SortFunc(extras, func(a, b File) int {
		return cmp.Or(cmp.Compare(a.BaseName(), b.BaseName()), cmp.Compare(a.Digest(), b.Digest()))
	})
	for _, extra := range extras {
		write(extra.BaseName() + "\x00" + extra.Digest())
	}
	if c.PromptContext != nil {
		names := make([]string, len(c.PromptContext))
		for i, extra := range c.PromptContext {
			names[i] = openAIChatName
			if extra == Llama3DateTime {
				names[i] = llama3DateName
			}
		}
		write("[" + strings.Join(names, ", ") + "]")
	}
	big(int(c.EffectiveContextLength()))
	big(int(c.BlockSize))
	hash.Write([]byte{c.WorkerType.ordinal()})
	big(len(c.Needs))
	for _, pool := range c.Needs {
		big(len(pool))
		for _, worker := range pool {
			hash.Write([]byte{worker.ordinal()})
		}
	}
	if c.RouterConfig != nil {
		var compact bytes.Buffer
		if json.Compact(&compact, c.RouterConfig) != nil { // not JSON, which Parse does not let through
			compact.Write(c.RouterConfig)
		}
		digest := blake3.Sum256(compact.Bytes())
		hash.Write(digest[:])
	}
	if c.IndexerIdentity != nil {
		write(indexerIdentityDomain)
		writeDimension(hash, c.IndexerIdentity.Semantics)
		writeDimension(hash, c.IndexerIdentity.RoutingScope)
	}
	if len(c.Aliases) > 0 {
		big(len(c.Aliases))
		for _, alias := range c.Aliases {
			big(len(alias))
			write(alias)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// writeDimension frames a map: a flag whether it is there, the count, and each key and value behind its length, little-endian.
func writeDimension(hash io.Writer, dimension map[string]string) {
	if dimension == nil {
		hash.Write([]byte{0})
		return
	}
	framed := binary.LittleEndian.AppendUint32([]byte{1}, uint32(len(dimension)))
	for _, key := range slices.Sorted(maps.Keys(dimension)) {
		for _, text := range []string{key, dimension[key]} {
			framed = append(binary.LittleEndian.AppendUint32(framed, uint32(len(text))), text...)
		}
	}
	hash.Write(framed)
}
