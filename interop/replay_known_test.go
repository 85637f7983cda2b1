package interop

// recordedMode is the router mode that the cases were recorded with.
const recordedMode = "kv"

var knownScripted = map[string]string{
	"chat-tool-history-null-content": "the recorded frontend refuses null content beside tool calls, which the template renders well",
}
