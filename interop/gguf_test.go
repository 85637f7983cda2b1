package interop

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// gguf writes a model file for llama.cpp (GGUF 3): metadata, then tensors of 32-bit floats.
type gguf struct {
	keys, infos, data bytes.Buffer
	keyCount, tensors uint64
	random            *rand.Rand
}

const (
	ggufUint32, ggufInt32, ggufFloat32, ggufBool, ggufString, ggufArray = 4, 5, 6, 7, 8, 9
	ggufAlignment                                                       = 32
)

func little(w *bytes.Buffer, values ...any) {
	for _, value := range values {
		if text, ok := value.(string); ok {
			little(w, uint64(len(text)))
			w.WriteString(text)
			continue
		}
		if err := binary.Write(w, binary.LittleEndian, value); err != nil {
			panic(err)
		}
	}
}

func (g *gguf) key(name string, kind uint32, value any) {
	g.keyCount++
	little(&g.keys, name, kind, value)
}

func (g *gguf) texts(name string, values []string) {
	g.keyCount++
	little(&g.keys, name, uint32(ggufArray), uint32(ggufString), uint64(len(values)))
	for _, value := range values {
		little(&g.keys, value)
	}
}

// tensor adds weights that are drawn at random, or all one.
func (g *gguf) tensor(name string, scale float64, dimensions ...uint64) {
	g.tensors++
	little(&g.infos, name, uint32(len(dimensions)))
	count := uint64(1)
	for _, size := range dimensions {
		little(&g.infos, size)
		count *= size
	}
	little(&g.infos, uint32(0), uint64(g.data.Len()))
	row := make([]byte, 4*count)
	for i := range count {
		value := 1.0
		if scale > 0 {
			value = scale * g.random.NormFloat64()
		}
		binary.LittleEndian.PutUint32(row[4*i:], math.Float32bits(float32(value)))
	}
	g.data.Write(row)
	g.data.Write(make([]byte, -len(row)&(ggufAlignment-1)))
}

func (g *gguf) write(t *testing.T, name string) {
	t.Helper()
	var head bytes.Buffer
	head.WriteString("GGUF")
	little(&head, uint32(3), g.tensors, g.keyCount)
	head.Write(g.keys.Bytes())
	head.Write(g.infos.Bytes())
	head.Write(make([]byte, -head.Len()&(ggufAlignment-1)))
	head.Write(g.data.Bytes())
	if err := os.WriteFile(name, head.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// writeRandomModel writes a model of the llama architecture with random weights and the tokenizer of a directory, of byte-level pieces cut as Qwen2 cuts them, for
// llama.cpp.
func writeRandomModel(t *testing.T, directory, name string) {
	t.Helper()
	var file struct {
		Model struct {
			Vocab  map[string]uint32
			Merges []json.RawMessage
		}
		Added []struct {
			ID      uint32
			Content string
			Special bool
		} `json:"added_tokens"`
	}
	var config struct {
		Template string `json:"chat_template"`
		End      string `json:"eos_token"`
	}
	for part, into := range map[string]any{"tokenizer.json": &file, "tokenizer_config.json": &config} {
		text, err := os.ReadFile(filepath.Join(directory, part))
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	size := uint32(0)
	for _, id := range file.Model.Vocab {
		size = max(size, id+1)
	}
	for _, added := range file.Added {
		size = max(size, added.ID+1)
	}
	tokens, kinds := make([]string, size), make([]int32, size)
	for i := range tokens {
		tokens[i], kinds[i] = fmt.Sprintf("<unused-%d>", i), 5
	}
	for piece, id := range file.Model.Vocab {
		tokens[id], kinds[id] = piece, 1
	}
	end := uint32(0)
	for _, added := range file.Added {
		tokens[added.ID], kinds[added.ID] = added.Content, 4
		if added.Special {
			kinds[added.ID] = 3
		}
		if added.Content == config.End {
			end = added.ID
		}
	}
	merges := make([]string, len(file.Model.Merges))
	for i, raw := range file.Model.Merges {
		var pair []string
		if json.Unmarshal(raw, &pair) == nil && len(pair) == 2 {
			merges[i] = pair[0] + " " + pair[1]
		} else if err := json.Unmarshal(raw, &merges[i]); err != nil {
			t.Fatal(err)
		}
	}
	const width, inner, layers, heads = 64, 128, 2, 4
	g := &gguf{random: rand.New(rand.NewPCG(7, 7))}
	g.key("general.architecture", ggufString, "llama")
	g.key("general.name", ggufString, "random")
	g.key("llama.context_length", ggufUint32, uint32(2048))
	g.key("llama.embedding_length", ggufUint32, uint32(width))
	g.key("llama.block_count", ggufUint32, uint32(layers))
	g.key("llama.feed_forward_length", ggufUint32, uint32(inner))
	g.key("llama.attention.head_count", ggufUint32, uint32(heads))
	g.key("llama.attention.layer_norm_rms_epsilon", ggufFloat32, float32(1e-5))
	g.key("llama.rope.dimension_count", ggufUint32, uint32(width/heads))
	g.key("llama.vocab_size", ggufUint32, size)
	g.key("tokenizer.ggml.model", ggufString, "gpt2")
	g.key("tokenizer.ggml.pre", ggufString, "qwen2")
	g.texts("tokenizer.ggml.tokens", tokens)
	g.keyCount++
	little(&g.keys, "tokenizer.ggml.token_type", uint32(ggufArray), uint32(ggufInt32), uint64(len(kinds)), kinds)
	g.texts("tokenizer.ggml.merges", merges)
	g.key("tokenizer.ggml.eos_token_id", ggufUint32, end)
	g.key("tokenizer.ggml.add_bos_token", ggufBool, false)
	g.key("tokenizer.chat_template", ggufString, config.Template)
	g.tensor("token_embd.weight", 1, width, uint64(size))
	for i := range layers {
		block := fmt.Sprintf("blk.%d.", i)
		g.tensor(block+"attn_norm.weight", 0, width)
		for _, part := range []string{"attn_q", "attn_k", "attn_v", "attn_output"} {
			g.tensor(block+part+".weight", 0.2, width, width)
		}
		g.tensor(block+"ffn_norm.weight", 0, width)
		g.tensor(block+"ffn_gate.weight", 0.2, width, inner)
		g.tensor(block+"ffn_up.weight", 0.2, width, inner)
		g.tensor(block+"ffn_down.weight", 0.2, inner, width)
	}
	g.tensor("output_norm.weight", 0, width)
	g.tensor("output.weight", 0.5, width, uint64(size))
	g.write(t, name)
}
