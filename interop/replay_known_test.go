package interop

// recordedMode is the router mode that the cases were recorded with.
const recordedMode = "kv"

const parsers = "tool and reasoning parsers are not there yet"

var knownScripted = map[string]string{
	"chat-tool-history-null-content": "the recorded frontend refuses null content beside tool calls, which the template renders well",
	"chat-think-stream":              parsers, "chat-think": parsers, "chat-tool-choice-none": parsers, "chat-tool-named-stream": parsers,
	"chat-tool-named": parsers, "chat-tool-no-tools": parsers, "chat-tool-parallel-false": parsers, "chat-tool-required-stream": parsers,
	"chat-tool-required": parsers, "chat-tool-stream": parsers, "chat-tool": parsers, "chat-tool2-stream": parsers, "chat-tool2": parsers,
	"msg-think-stream": parsers, "msg-tool": parsers, "resp-think": parsers, "resp-tool-stream": parsers, "resp-tool": parsers,
}
