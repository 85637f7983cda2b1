package upstream

import (
	"context"
	"slices"
	"strconv"

	"github.com/zeebo/xxh3"

	"signalbox/inference"
)

// Server is one server that can be sent to.
type Server struct {
	Config
	// ID is the worker's identity in routing: the same for the same key, in every process and after every start.
	ID uint64
	// About is what the server says about itself, with what the configuration says in its place.
	About About

	gone   context.Context // ends when the server is not to be waited for any longer
	vanish context.CancelCauseFunc
}

// About is what is known of a server.
type About struct {
	Kind    Kind
	Version string
	// Model is the served model by the server's own name.
	Model string
	// Adapter tells that the model is a LoRA adapter of another one.
	Adapter bool
	// ContextLength is in tokens, BlockSize the tokens of a KV-cache block, Blocks how many of them each rank has; 0 when nobody says.
	ContextLength uint32
	BlockSize     uint32
	Blocks        uint64
	// Slots is how many requests run at a time; 0 when nobody says.
	Slots uint64
}

// defaultBlock is the block size of servers that say nothing about theirs, in tokens: the unit in which shared prefixes are predicted.
const defaultBlock = 16

// newServer makes a server of its configuration and what it says.
func newServer(c Config, about About) *Server {
	s := &Server{Config: c, ID: Identity(c.Key()), About: about}
	s.gone, s.vanish = context.WithCancelCause(context.Background())
	if c.ContextLength > 0 {
		s.About.ContextLength = c.ContextLength
	}
	if c.Blocks > 0 {
		s.About.Blocks = c.Blocks
	}
	if c.BlockSize > 0 {
		s.About.BlockSize = c.BlockSize
	}
	if s.About.BlockSize == 0 {
		s.About.BlockSize = defaultBlock
	}
	return s
}

// Identity is the worker id of the server with a key, from 1 to 2⁶³-1.
func Identity(key string) uint64 {
	return max(1, xxh3.HashString(key)>>1)
}

// leave ends the streams of a server that is gone.
func (s *Server) leave() {
	s.vanish(&inference.Error{Kind: inference.Disconnected, WorkerID: s.ID, Message: "server " + s.URL + " is gone"})
}

// ServedName is the name under which clients ask for its model.
func (s *Server) ServedName() string {
	if s.Name != "" {
		return s.Name
	}
	return s.About.Model
}

// TakesTokens tells whether prompts go to it as tokens.
func (s *Server) TakesTokens() bool { return s.Tokenizer != "" }

// Does tells whether it can be asked for the use.
func (s *Server) Does(use string) bool { return slices.Contains(s.Ask(), use) }

// same tells whether the server is still what it was.
func (a About) same(b About) bool {
	a.Version, b.Version = "", ""
	return a == b
}

// String names the server in logs.
func (s *Server) String() string {
	return string(s.About.Kind) + " " + s.About.Version + " at " + s.URL + " with " + strconv.Quote(s.About.Model)
}
